"""
Spec: a flow as its author wrote it, before anybody asked whether it makes sense.

`flow.py` collects these values from decorators and signatures; `core.definition.checks` finds
what is wrong with them; `core.definition.shape` writes them as JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

RUN, CTX, ITEM, INPUT = "run", "ctx", "item", "input"
RESERVED = frozenset({RUN, CTX, ITEM, INPUT})

FLOW_OPTIONS = ("max_attempts", "base_delay", "timeout")
STEP_OPTIONS = (
    *FLOW_OPTIONS, "start_delay", "if_", "if_not", "when_unmet", "when_exhausted",
)  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One parameter of a handler; only a named one can be given an argument."""

    name: str
    is_named: bool = True
    has_default: bool = False


@dataclass(frozen=True)
class StepSpec:
    """One step: its handler, the names it was given, and where it stands."""

    slug: str
    place: str
    handler: Callable[..., Any]
    parameters: tuple[Parameter, ...] = ()
    is_map: bool = False
    over: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)  # those that are set

    def takes(self, name: str) -> bool:
        return any(parameter.name == name for parameter in self.parameters)

    @property
    def named_deps(self) -> tuple[str, ...]:
        """Deps that are parameters."""
        return tuple(p.name for p in self.parameters if p.is_named and p.name not in RESERVED)

    @property
    def data_deps(self) -> tuple[str, ...]:
        """Deps whose output the handler may see."""
        return tuple(dict.fromkeys((*self.over, *self.named_deps, *self.depends_on)))

    @property
    def deps(self) -> tuple[str, ...]:
        """All deps, each once, in the order of writing."""
        return tuple(dict.fromkeys((*self.data_deps, *self.after)))

    @property
    def may_be_skipped(self) -> bool:
        """Whether its dependents may have to run without its output."""
        has_condition = "if_" in self.options or "if_not" in self.options
        unmet_skips = has_condition and self.options.get("when_unmet", "skip") == "skip"
        return unmet_skips or self.options.get("when_exhausted") == "skip"


@dataclass(frozen=True)
class FlowSpec:
    """A flow: its steps in the order of writing."""

    slug: str
    place: str
    options: Mapping[str, Any]
    steps: tuple[StepSpec, ...]
