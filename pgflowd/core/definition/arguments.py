"""
Makes the arguments of a handler from the record that a claim returned.

A record has the task's `input`: an element for a map, an object of dep outputs for a single step.
The run's input comes with it (`flow_input`) for root steps, and for later ones whose handlers take
it; older cores put it under the key `run` of every single step's input. Where it did not come, as a
large one, it is fetched.
No step can be named `run`, so the key shows an older core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from pgflowd.core.definition.spec import CTX, INPUT, ITEM, RUN, StepSpec
from pgflowd.core.json import SQL_NULL
from pgflowd.core.undo import Original, part_of
from pgflowd.errors import RunError


class Claimed(Protocol):
    """The part of a claim's record that arguments are made of; SQL null is SQL_NULL."""

    @property
    def input(self) -> Any: ...
    @property
    def flow_input(self) -> Any: ...


def arguments_for(
    step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any], ctx: object
) -> dict[str, Any]:
    """Return the handler's arguments by name, or raise E405 for a skipped dep without a default.

    `fetch_run_input` is called only if the handler asks for the run's input and the record does
    not have it.
    """
    arguments: dict[str, Any] = {}
    for parameter in step.parameters:
        if parameter.name == CTX:
            arguments[CTX] = ctx
        elif step.is_map != (parameter.name == ITEM):
            # it is of versions in which the step was, or was not, a map: here it has its default
            if not parameter.has_default:
                raise RunError(f"step {step.slug}: there is no '{parameter.name}'", code="E405")
        elif parameter.name == ITEM:
            arguments[ITEM] = record.input
        elif parameter.name == RUN:
            arguments[RUN] = run_input(step, record, fetch_run_input)
        elif parameter.name == INPUT:
            outputs = {dep: record.input[dep] for dep in step.data_deps if dep in record.input}
            arguments[INPUT] = {RUN: run_input(step, record, fetch_run_input), **outputs}
        elif parameter.name in record.input:
            arguments[parameter.name] = record.input[parameter.name]
        elif not parameter.has_default:
            raise RunError(
                f"step {step.slug}: dep '{parameter.name}' was skipped and has no default",
                code="E405",
                next=f"give it one, such as {parameter.name}=None",
            )
    return arguments


def undo_arguments(step: StepSpec, original: Original | None, ctx: object) -> dict[str, Any] | None:
    """
    Return the arguments of an undo handler, or None if there is nothing to undo.

    Its task may have been attempted only: then it has no output, and the parameter its default.
    """
    if original is None:
        return None
    arguments: dict[str, Any] = {}
    for parameter in step.parameters:
        part = part_of(parameter.name)
        if parameter.name == CTX:
            arguments[CTX] = ctx
        elif part in original.parts:
            arguments[parameter.name] = original.parts[part]
        elif not parameter.has_default:
            raise RunError(
                f"step {step.slug}: the task has no {part}, and '{parameter.name}' no default",
                code="E405",
                next=f"give it one, such as {parameter.name}=None",
            )
    return arguments


def run_input(step: StepSpec, record: Claimed, fetch_run_input: Callable[[], Any]) -> Any:
    """The run's input: from the record if it is there, else fetched."""
    if not step.is_map and RUN in record.input:
        return record.input[RUN]
    if record.flow_input is not SQL_NULL:
        return record.flow_input
    return fetch_run_input()
