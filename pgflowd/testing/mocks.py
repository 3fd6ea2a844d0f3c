"""Which of a handler's arguments a mock takes in its place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from pgflowd.core.definition.spec import StepSpec
from pgflowd.core.suggest import did_you_mean


def named_by(mocked: Callable[..., Any], arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that a mock has parameters for; all of them if it takes any."""
    names = parameters_of(mocked)
    return arguments if names is None else {n: v for n, v in arguments.items() if n in names}


def parameters_of(mocked: Callable[..., Any]) -> set[str] | None:
    """The names of a mock's parameters; None if it takes any, or does not tell."""
    try:
        parameters = inspect.signature(mocked).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return None
    return {each.name for each in parameters if each.kind is not each.VAR_POSITIONAL}


def refuse_unknown_parameters(step: StepSpec, mocked: Callable[..., Any]) -> None:
    known = {each.name for each in step.parameters}
    for name in sorted((parameters_of(mocked) or set()) - known):
        parameter = inspect.signature(mocked).parameters[name]
        if parameter.default is parameter.empty:
            hint = did_you_mean(name, known) or f"it has {', '.join(sorted(known)) or 'none'}"
            text = f"mock of step {step.slug} takes '{name}', which its handler does not take"
            raise ValueError(f"{text}; {hint}")
