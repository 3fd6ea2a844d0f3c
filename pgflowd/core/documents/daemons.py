"""
The daemons of all machines, as the database knows them: what each has told last, and when.

Their status documents have been read by `told_status`, so each has all keys. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isfinite
from typing import Annotated, Any
from uuid import UUID

from pgflowd.core.documents import DocumentOf, Named
from pgflowd.core.documents.daemon import DaemonStatus
from pgflowd.core.statuses import DaemonState, DatabaseState
from pgflowd.core.supervision.tree import ChildState
from pgflowd.core.text import counted, duration

ENDING = (DaemonState.DRAINING, DaemonState.STOPPING)
_TEXTS = ("problems", "error", "exits")  # the keys of a status document that have free texts


@dataclass(frozen=True)
class ListedDaemon:
    """One start of a daemon on a machine."""

    daemon_id: Annotated[UUID, Named("id"), "of this start of the daemon"]
    name: str
    host: str
    pid: int
    version: str
    started_at: datetime
    heartbeat_at: Annotated[datetime, "when it has told how it is"]
    age_s: Annotated[float, "how long ago that is, by the database's clock"]
    state: Annotated[DaemonState, "as it has told last"]
    is_silent: Annotated[
        bool, "it has told nothing for longer than it should: it was killed, or lost the database"
    ]
    living_workers: Annotated[
        int | None,
        "of one that is silent or ends: how many of its workers have sent a heartbeat in the last"
        " 30 seconds",
    ]
    held_tasks: Annotated[
        int | None, "of such a one: how many tasks they have begun and not reported"
    ]
    lapses_in_s: Annotated[
        float | None, "of such a one: when the last of their leases lapses; negative if it has"
    ]
    status: Annotated[Mapping[str, Any], DocumentOf(DaemonStatus), "what `status` prints there"]

    @property
    def place(self) -> str:
        return f"{self.name}@{self.host}"

    @property
    def up_s(self) -> float | None:
        """How long it has run; of a silent one nobody knows."""
        return None if self.is_silent else float(self.status["up_s"]) + self.age_s

    @property
    def flows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status["flows"]
        return found

    @property
    def flow_states(self) -> dict[str, int]:
        """How many of its flows are in each state; those that are well come first."""
        states = Counter(flow["state"] for flow in self.flows)
        well = [state for state in (ChildState.UP.value, ChildState.ASLEEP.value) if states[state]]
        return {state: states[state] for state in [*well, *sorted(states.keys() - well)]}

    @property
    def running(self) -> int:
        """The tasks at work."""
        return sum(flow["running"] for flow in self.flows)

    @property
    def most_running(self) -> int:
        """How many tasks may be at work at once."""
        return sum(flow["max_concurrency"] or 0 for flow in self.flows)

    @property
    def restarts(self) -> tuple[int, int]:
        """How many restarts there were lately, and how many may be."""
        supervisor = self.status["supervisor"]
        return supervisor["restarts"], supervisor["max_restarts"]

    @property
    def database(self) -> dict[str, Any]:
        found: dict[str, Any] = self.status["database"]
        return found

    @property
    def problems(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status["problems"]
        return found


def silence(daemon: ListedDaemon, *, is_alone: bool) -> str:
    """What became of a silent daemon, and what happens with its tasks. `is_alone`: none lives."""
    text = f"no heartbeat for {duration(round(daemon.age_s))} (was {daemon.state})."
    tasks, left_s = daemon.held_tasks or 0, daemon.lapses_in_s
    whose = f"Its {counted(tasks, 'task')} {'is' if tasks == 1 else 'are'}"
    lapse = "its lease lapses" if tasks == 1 else "their leases lapse"
    if daemon.living_workers:
        workers = counted(daemon.living_workers, "worker")
        lives = "lives" if daemon.living_workers == 1 else "live"
        return f"{text} {workers} of it {lives}: see `pgflowd status` on {daemon.host}."
    if not tasks:
        return f"{text} It has left no task behind."
    if is_alone:
        return f"{text} {whose} recovered when a daemon runs: none does."
    if left_s is not None and left_s > 0:
        return f"{text} {whose} recovered when {lapse}, in {duration(max(1, round(left_s)))}."
    return f"{text} {whose} recovered by the next sweep."


def database_text(daemon: ListedDaemon) -> str:
    """How far its database is away, and by how much the clocks differ; empty if it is not known."""
    rtt_s, skew_s = daemon.database["rtt_s"], daemon.database["clock_skew_s"]
    if daemon.database["state"] == DatabaseState.DOWN:
        return str(DatabaseState.DOWN)
    parts = [] if rtt_s is None else [duration(rtt_s)]
    if skew_s is not None and round(skew_s * 1000):
        parts.append(f"clock {round(skew_s * 1000):+} ms")
    return ", ".join(parts)


def is_alone(daemons: Sequence[ListedDaemon]) -> bool:
    """Whether none of them lives."""
    return all(each.is_silent for each in daemons)


def stored(status: Any, hide: Callable[[str], str], *, is_text: bool = False) -> Any:
    """
    A status document as the database takes it: it has no numbers without an end, and no texts with
    a zero or half a character. Secrets in texts of people are hidden, as in the log.
    """
    if isinstance(status, dict):
        return {
            key: stored(value, hide, is_text=is_text or key in _TEXTS)
            for key, value in status.items()
        }
    if isinstance(status, list):
        return [stored(each, hide, is_text=is_text) for each in status]
    if isinstance(status, str):
        text = status.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()
        return hide(text) if is_text else text
    return None if isinstance(status, float) and not isfinite(status) else status
