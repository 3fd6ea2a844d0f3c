"""
The `ctx` of a handler that a test calls.

    assert website({"url": "x"}, fake_context(attempt=2)) == …
    assert order({}, fake_context(saved={"charge": 7}, signals={"paid": {"amount": 12}})) == …

Neither `cancelled` nor `stopping` is set, and there is no database. Checkpoints are in `saved`. No
wait takes time: a sleep is over at once, and a wait for a signal gets what `signals` has, or ends
with its timeout. Child runs are those of `children`, as `run_flow` takes them, and end likewise.
"""

from __future__ import annotations

import logging
import threading
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pgflowd.core.child_runs import ChildRun, ChildStart, StartingContext
from pgflowd.core.context import Context, refuse_unknown_step
from pgflowd.core.json import as_stored, deep_copy
from pgflowd.core.progress import progress_of
from pgflowd.core.typed.values import read_as
from pgflowd.core.undo import Undo
from pgflowd.core.waiting import Checkpoint, Wait, WaitingContext, WaitKind
from pgflowd.errors import BadDependency
from pgflowd.testing.child_runs import TestedChildren
from pgflowd.testing.engine import SentSignal
from pgflowd.testing.signals import sent_signals
from pgflowd.testing.sizes import Room

if TYPE_CHECKING:
    from psycopg import Connection


@dataclass
class PlainContext(StartingContext):
    """What all contexts of tests have: plain values, and events that a test can set."""

    run_id: str = "00000000-0000-7000-8000-000000000000"
    flow_slug: str = "flow"
    step_slug: str = "step"
    task_index: int = 0
    attempt: int = 1
    max_attempts: int = 3
    token: int = 1
    deadline: datetime = field(default_factory=lambda: datetime.now(UTC) + timedelta(seconds=60))
    caps: frozenset[str] = frozenset()
    resources: Any = None
    labels: Mapping[str, str] = field(default_factory=dict)
    scheduled_for: datetime | None = None
    traceparent: str | None = None
    undo: Undo | None = None  # of an undo handler
    log: logging.Logger = field(default_factory=lambda: logging.getLogger("pgflowd.handler"))
    cancelled: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    run_input: Any = None  # returned by flow_input()
    step_outputs: Mapping[str, Any] = field(default_factory=dict)
    steps: Collection[str] = ()  # of the flow; unless empty, step_output() refuses other slugs
    connection: Connection[Any] | None = None  # returned by conn()

    def flow_input(self, as_type: Any = None) -> Any:
        return read_as(deep_copy(self.run_input), as_type, "run")

    def progress(
        self, done: float, total: float | None = None, text: str = "", **detail: Any
    ) -> None:
        self._keep_progress(as_stored(progress_of(done, total, text, detail), what="progress"))

    @abstractmethod
    def _keep_progress(self, told: dict[str, Any]) -> None: ...

    def step_output(self, slug: str, as_type: Any = None) -> Any:
        if self.steps:
            refuse_unknown_step(slug, self.steps, self.flow_slug)
        value = deep_copy(self.step_outputs.get(slug))
        return None if value is None else read_as(value, as_type, slug)

    def conn(self) -> Connection[Any]:
        if self.connection is None:
            raise RuntimeError(
                "a fake context has no database; mock the step, or give run_flow or fake_context a"
                " connection=…"
            )
        return self.connection

    def _moment(self) -> datetime:
        return datetime.now(UTC)

    def _read_children(self) -> Mapping[str, str]:
        return {run_id: run_id for run_id in self._tested_children.started}

    def _start_child(self, child: ChildStart) -> str:
        if child.wishes and self.run_id in map(str, child.wishes.after):
            text = f"run {child.run_id} cannot begin after run {self.run_id}, which is its parent"
            raise BadDependency(text, next="leave it out; see docs/guides/child-runs.md")
        now, moment = self._now(), self._moment()
        self._tested_children.start(child, self.step_slug, now, moment)
        return child.run_id

    def _read_runs(self, run_ids: Sequence[str]) -> list[ChildRun]:
        return self._tested_children.read(run_ids)

    @property
    @abstractmethod
    def _tested_children(self) -> TestedChildren: ...
    @abstractmethod
    def _now(self) -> float:
        """Virtual time."""

    @cached_property
    def _room(self) -> Room:
        return Room(self._saved.values())

    def _from_now(self, wait: Wait) -> Wait:
        """The wait with its seconds from now, where it has a moment."""
        if wait.until is None:
            return wait
        left_s = (wait.until - self._moment()).total_seconds()
        return replace(wait, in_s=max(0.0, left_s), until=None)


@dataclass
class FakeContext(PlainContext):
    """The context of a handler that a test calls by itself."""

    saved: dict[str, Any] = field(default_factory=dict)  # by the names of `save` and `memo`
    signals: Mapping[str, Any] = field(default_factory=dict)  # as `run_flow` takes them
    children: Mapping[str, Any] = field(default_factory=dict)  # likewise
    waited_s: float = 0.0  # in virtual time
    progress_told: list[dict[str, Any]] = field(default_factory=list)  # by `progress`

    _version = 1

    def _keep_progress(self, told: dict[str, Any]) -> None:
        self.progress_told.append(told)

    def _read_checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint(name, 1, as_stored(value)) for name, value in self.saved.items()]

    def _keep(self, checkpoint: Checkpoint) -> None:
        self._room.take(checkpoint)
        self.saved[checkpoint.name] = checkpoint.data

    def _forget(self, name: str) -> None:
        self._room.give_back(name)
        del self.saved[name]

    def _end_of(self, wait: Wait) -> Any:
        """End the wait now, since nobody lets the handler begin again."""
        name = str(wait.checkpoint)
        if name not in self._saved:
            self._saved[name] = Checkpoint(name, 1, self._ended_now(self._from_now(wait)))
        return WaitingContext._end_of(self, wait)

    def _ended_now(self, wait: Wait) -> dict[str, Any]:
        if wait.kind is WaitKind.SIGNAL:
            return self._end_of_signal(wait)
        if wait.kind is WaitKind.RUNS:
            return self._end_of_runs(wait)
        self.waited_s += wait.in_s or 0.0
        return {"slept": True}

    def _end_of_signal(self, wait: Wait) -> dict[str, Any]:
        sent = [each for each in self._unused if each.name == wait.name][:1]
        ends_at = None if wait.in_s is None else self.waited_s + wait.in_s
        for signal in sent:
            if ends_at is None or signal.sent_at <= ends_at:
                self._unused.remove(signal)
                self.waited_s = max(self.waited_s, signal.sent_at)
                return {"got": signal.payload}
        if ends_at is None:
            raise RuntimeError(
                f"step {self.step_slug} waits for signal '{wait.name}', which nothing sends;"
                f" give the context signals={{'{wait.name}': …}}"
            )
        self.waited_s = ends_at
        return {"timeout": True}

    def _end_of_runs(self, wait: Wait) -> dict[str, Any]:
        ended_at = self._tested_children.ended_at(wait.runs or ())
        if wait.in_s is not None and ended_at > self.waited_s + wait.in_s:
            self.waited_s += wait.in_s
            return {"timeout": True}
        self.waited_s = max(self.waited_s, ended_at)
        return {"ended": True}

    def _now(self) -> float:
        return self.waited_s

    @cached_property
    def _tested_children(self) -> TestedChildren:
        return TestedChildren(self.children)

    @cached_property
    def _unused(self) -> list[SentSignal]:
        return sent_signals(self.signals)


def fake_context(**values: Any) -> FakeContext:
    """A context with these values, such as `attempt=2` or `run_input={"url": "x"}`."""
    return FakeContext(**values)


_CHECKED_BY_MYPY: type[Context] = FakeContext
