"""
Notes: what a decorator saw of a handler, until all steps are known.

A dep may be given as a step's function, also one that is defined further down or wrapped by
another decorator; so slugs are looked up only when somebody asks for the spec.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pgflowd.core.definition.spec import Parameter, StepSpec


class DecoratedHandler:
    """One decorated function with its options as given; unset ones are left out."""

    def __init__(
        self, handler: Callable[..., Any], options: dict[str, Any], is_map: bool, place: str
    ) -> None:
        self.handler, self.is_map, self.place = handler, is_map, place
        slug = options.pop("slug", getattr(handler, "__name__", "<no name>"))
        self.slug: str = slug if isinstance(slug, str) else f"<{slug!r}>"
        allowed = ("over",) if is_map else ("depends_on", "after")
        self.deps = {name: _listed(options.pop(name, ())) for name in allowed}
        self.options = options

    def spec(self, slugs: Mapping[int, str]) -> StepSpec:
        deps = {
            option: tuple(_slug_of(name, slugs) for name in names)
            for option, names in self.deps.items()
        }
        return StepSpec(
            slug=self.slug,
            place=self.place,
            handler=self.handler,
            parameters=_parameters(self.handler),
            is_map=self.is_map,
            options=self.options,
            **deps,
        )


def _listed(names: Any) -> tuple[Any, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence | set | frozenset):
        return (names,)
    return tuple(names)


def _slug_of(name: Any, slugs: Mapping[int, str]) -> str:
    """The slug meant: a text is one, a step's function has one, wrapped or not."""
    while not isinstance(name, str):
        if id(name) in slugs:
            return slugs[id(name)]
        name = getattr(name, "__wrapped__", getattr(name, "__name__", repr(name)))
    return name


def _parameters(handler: Callable[..., Any]) -> tuple[Parameter, ...]:
    try:
        parameters = inspect.signature(handler).parameters.values()
    except (TypeError, ValueError):  # of builtins, which do not tell
        return (Parameter("(unknown)", is_named=False),)
    return tuple(
        Parameter(
            name=str(parameter).split(":")[0] if _is_star(parameter) else parameter.name,
            is_named=parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY),
            has_default=parameter.default is not parameter.empty,
        )
        for parameter in parameters
    )


def _is_star(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
