"""
Arguments: what a handler is called with, from what the claim returned.

The claim gives each task its `input`: an element for a map, an object of dep outputs for a
single step. The run's input comes along for root steps only (`flow_input`), on older cores as
key `run` of every single step's input, and is fetched when a handler asks for it otherwise.
No step can be called `run`, so the key tells old from new.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pgflowd.core.definition.spec import CTX, INPUT, ITEM, RUN, StepSpec
from pgflowd.core.json.sql_null import SQL_NULL
from pgflowd.errors import RunError


class Claimed(Protocol):
    """The part of a claim's record that arguments are made of; SQL null is ABSENT."""

    @property
    def input(self) -> Any: ...
    @property
    def flow_input(self) -> Any: ...


def arguments_for(
    step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any], ctx: object
) -> dict[str, Any]:
    """Return the handler's arguments by name, or raise E405 for a skipped dep.

    `fetch_run_input` is called only if the handler asks for the run's input and the record
    does not have it.
    """
    arguments: dict[str, Any] = {}
    for parameter in step.parameters:
        if parameter.name == CTX:
            arguments[CTX] = ctx
        elif parameter.name == ITEM:
            arguments[ITEM] = record.input
        elif parameter.name == RUN:
            arguments[RUN] = run_input(step, record, fetch_run_input)
        elif parameter.name == INPUT:
            arguments[INPUT] = _whole_input(step, record, fetch_run_input)
        elif parameter.name in record.input:
            arguments[parameter.name] = record.input[parameter.name]
        elif not parameter.has_default:
            raise _skipped(step, parameter.name)
    return arguments


def run_input(step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any]) -> Any:
    """The run's input: from the record if it is there, else fetched."""
    if not step.is_map and RUN in record.input:
        return record.input[RUN]
    if record.flow_input is not SQL_NULL:
        return record.flow_input
    return fetch_run_input()


def _whole_input(step: StepSpec, record: Claimed, fetch: Callable[[], Any]) -> dict[str, Any]:
    outputs = {dep: record.input[dep] for dep in step.data_deps if dep in record.input}
    return {RUN: run_input(step, record, fetch), **outputs}


def _skipped(step: StepSpec, dep: str) -> RunError:
    return RunError(
        f"step {step.slug}: dep '{dep}' was skipped and has no default",
        code="E405",
        next=f"give it one, such as {dep}=None",
    )
