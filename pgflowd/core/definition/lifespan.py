"""Checks the lifespan of a flow: a generator function without arguments, one for each flow."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pgflowd.core.definition.spec import LifespanSpec
from pgflowd.errors import Problem


def lifespan_problems(
    flow: str, function: Any, name: str, place: str, earlier: LifespanSpec | None
) -> Iterator[Problem]:
    """What is wrong with a function that is decorated as the lifespan of a flow."""
    what = f"flow {flow}: the lifespan {name}"
    if earlier is not None:
        text = f"{what} is the second one; {earlier.name} is at {earlier.place}"
        yield Problem("E209", text, place, "let one of them do both")
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        text = f"{what} is not a generator function"
        remedy = "write a function, def or async def, that yields once what ctx.resources is to be"
        yield Problem("E209", text, place, remedy)
        return
    parameters = inspect.signature(function).parameters.values()
    if needed := [each.name for each in parameters if each.default is each.empty]:
        text = f"{what} has the parameter {needed[0]}, and is called without arguments"
        yield Problem("E209", text, place, "let it read what it needs by itself")
