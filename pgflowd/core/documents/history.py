"""What happened: the events of a run, the actions of people, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from uuid import UUID

from pgflowd.core.documents import ListColumn, TaskKey, number
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
    event: Annotated[str, "what happened"]
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


@dataclass(frozen=True)
class EventPage:
    """The newest events of a run, or of those before a moment, in the order of time."""

    events: Annotated[
        Sequence[RunEvent],
        "what happened in the run, in the order of time; of very many events the newest",
    ]
    before: Annotated[datetime | None, "null, or the moment with which `--before` shows older ones"]


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
    flow: Annotated[str | None, "the slug of the flow, if it was about one"]
    run_id: Annotated[UUID | None, "the id of the run, if it was about one"]
    step: Annotated[str | None, "the slug of the step, if it was about one"]
    task: Annotated[int | None, "the index of the task, if it was about one"]
    reason: str | None
    data: Annotated[Mapping[str, Any] | None, "more about it, as a JSON object"]
    session_role: str | None  # the role that was connected; None: before it was kept

    @property
    def who(self) -> str:
        return who(self.actor, self.session_role)

    @property
    def key(self) -> int:
        return self.action_id


@dataclass(frozen=True)
class DeadLetter:
    """A task that has failed for good, and its run with it; with its last attempt."""

    run_id: UUID
    step: str
    task: int
    flow: Annotated[str, ListColumn("FLOW")]
    attempts: Annotated[int, number("ATTEMPTS")]
    token: int | None  # None: the attempt was not kept, like the next two
    outcome: Annotated[str | None, "of the last attempt"]
    error_type: Annotated[str | None, "of the last attempt"]
    error: Annotated[str | None, "of the last attempt", ListColumn("ERROR", absent="")]
    failed_at: Annotated[datetime, ListColumn("FAILED")]

    @property
    def key(self) -> Annotated[TaskKey, ListColumn("TASK")]:
        return TaskKey(self.run_id, self.step, self.task)


class Actions(NamedTuple):
    """With `--follow` one action in each line, the oldest first."""

    actions: Annotated[Sequence[PersonAction], "the newest first"]
