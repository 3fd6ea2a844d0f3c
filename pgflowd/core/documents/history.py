"""What happened: the events of a run, the actions of people, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgflowd.core.documents import plain
from pgflowd.core.documents.flows import TaskKey
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import who

_IDS = ("action_id", "signal_id", "run_id", "name")  # in the detail of an event


@dataclass(frozen=True)
class RunEvent:
    """
    Something that happened in a run.

    `event` has a kind and a word: `run:started`, `step:completed`, `task:failed`, `child:started`,
    `signal:received`, `action:cancel`. `actor` is a person or program that did it, if one did.
    """

    at: datetime
    event: str
    step: str | None
    task: int | None
    token: int | None  # of the attempt that began or ended
    actor: str | None
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return self.event.partition(":")[0]

    @property
    def word(self) -> str:
        """What happened: a status, an outcome, or what somebody did."""
        return self.event.partition(":")[2]

    @property
    def who(self) -> str:
        """Who did it, and by which role; empty if nobody did."""
        return who(self.actor, self.detail.get("session_role")) if self.actor else ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other event of its run has: a follower knows it by this."""
        ids = (self.detail.get(name) for name in _IDS)
        return (self.event, self.at, self.step, self.task, self.token, *ids)

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))


@dataclass(frozen=True)
class EventPage:
    """The newest events of a run, or of those before a moment, in the order of time."""

    events: Sequence[RunEvent]
    before: datetime | None  # for the page with older ones; None: there are none

    def to_json(self) -> dict[str, Any]:
        return plain({"events": [one.to_json() for one in self.events], "before": self.before})


def is_over(events: Sequence[RunEvent]) -> bool:
    """Whether these events end the run: one that is undone goes on."""
    words = [event.word for event in events if event.kind == "run" and event.word != "planned"]
    return bool(words) and RunStatus(words[-1]).is_end


@dataclass(frozen=True)
class PersonAction:
    """What a person or client did; its fields are the keys of its document."""

    action_id: int
    at: datetime
    actor: str
    action: str  # the verb: cancel, retry, approve, …
    flow: str | None
    run_id: UUID | None
    step: str | None
    task: int | None
    reason: str | None
    data: Mapping[str, Any] | None
    session_role: str | None  # the role that was connected; None: before it was kept

    @property
    def who(self) -> str:
        return who(self.actor, self.session_role)

    @property
    def key(self) -> int:
        return self.action_id

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))


@dataclass(frozen=True)
class DeadLetter:
    """A task that has failed for good, and its run with it; with its last attempt."""

    run_id: UUID
    step: str
    task: int
    flow: str
    attempts: int
    token: int | None  # None: the attempt was not kept, like the next two
    outcome: str | None
    error_type: str | None
    error: str | None
    failed_at: datetime

    @property
    def key(self) -> TaskKey:
        return TaskKey(self.run_id, self.step, self.task)

    def to_json(self) -> dict[str, Any]:
        return plain(vars(self))
