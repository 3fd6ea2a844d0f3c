"""
The kinds of the supervisor's children, one row each.

Tree, inbox, status, screens and dump read these rows. A new kind is one row here, its main
function in `processes.supervisor.children`, and one module in `processes`. Pure.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core import messages as msg
from pgflowd.core.messages import Message
from pgflowd.core.settings.sections import Settings
from pgflowd.core.text import duration


@dataclass(frozen=True, eq=False)
class ChildKind:
    """One kind of children."""

    name: str  # in ids, titles, log records and the status (`core.documents.daemons`)
    sends: tuple[type[Message], ...]
    receives: tuple[type[Message], ...] = ()  # besides Drain and QuickStop
    is_group: bool = False  # one child per flow or entry
    death_signal: signal.Signals = signal.SIGKILL  # when the supervisor ends
    depends_on: Callable[[Settings], object] = lambda settings: None  # a change replaces the child
    summary: Callable[[Mapping[str, Any]], list[str]] = lambda status: []  # of its status, as text
    is_observer: bool = False  # beside the tree (docs/background/supervision.md, rule 50)
    is_wanted: Callable[[Settings], bool] = lambda settings: True  # else there is no process

    def child_id(self, name: str = "") -> str:
        """Return the id of a child, such as "worker send_email"; no flow can have such a slug."""
        return f"{self.name} {name}" if self.is_group else self.name


def _listener_settings(settings: Settings) -> object:
    keys = [settings.worker, *(settings.worker_for(slug) for slug in sorted(settings.flows))]
    used = [(each.signal_strategy, each.notify_throttle_s, each.poll_max_s) for each in keys]
    return (used, sorted(settings.flows)) if len(set(used)) > 1 else used[0]


def _listener_summary(status: Mapping[str, Any]) -> list[str]:
    last = status.get("last_notification_s")
    text = "no notification yet" if last is None else f"last notification {duration(last)} ago"
    wakes = sorted(status.get("wakes_1m", {}).items(), key=lambda item: item[0] == "fallback")
    counts = ", ".join(f"{count} {reason}" for reason, count in wakes)
    return [text, f"wakes 1m: {counts}"] if counts else [text]


def _sweeper_summary(status: Mapping[str, Any]) -> list[str]:
    texts = []
    if status.get("interval_s"):
        texts.append(f"every {duration(status['interval_s'])}")
    if status.get("last_sweep_s") is not None:
        texts.append(f"last {duration(status['last_sweep_s'])} ago")
    summary = [", ".join(texts)]
    if status.get("recovered_24h") is not None:
        day = f"{status['recovered_24h']} recovered, {status['given_up_24h']} given up"
        summary.append(f"24 h: {day}")
    return summary


def _http_summary(status: Mapping[str, Any]) -> list[str]:
    last = status.get("last_request_s")
    text = "no request yet" if last is None else f"last request {duration(last)} ago"
    return [*filter(None, [status.get("listen")]), text]


def _exporter_summary(status: Mapping[str, Any]) -> list[str]:
    known = {**status.get("spans", {}), "queued": status.get("queued")}
    counts = ", ".join(f"{count} {what}" for what, count in known.items() if count)
    return [
        *filter(None, [status.get("endpoint")]),
        f"spans: {counts}" if counts else "no span yet",
    ]


_COMMON = (
    msg.Ready,
    msg.Waiting,
    msg.Heartbeat,
    msg.Failed,
    msg.Leaving,
    msg.ConnectionRefused,
)

LISTENER = ChildKind(
    "listener",
    sends=(
        *_COMMON,
        msg.Wake,
        msg.Follow,
        msg.LookAtDue,
        msg.LookAtVersions,
        msg.LookAtDaemons,
        msg.ServeVersions,
        msg.ConnectionsLeft,
    ),
    depends_on=_listener_settings,
    summary=_listener_summary,
)
WORKER = ChildKind(
    "worker",
    sends=(
        *_COMMON,
        msg.MakeRoom,
        msg.HaveRoom,
        msg.FallingAsleep,
        msg.StayingAwake,
        msg.ConnectionWanted,
        msg.ConnectionReturned,
    ),
    receives=(
        msg.Wake,
        msg.Follow,
        msg.WorkerStanding,
        msg.MakeRoom,
        msg.HaveRoom,
        msg.SleepIfIdle,
        msg.ConnectionGranted,
    ),
    is_group=True,
    death_signal=signal.SIGTERM,  # it still has to kill its runners
)
SWEEPER = ChildKind(
    "sweeper",
    sends=(
        *_COMMON,
        msg.Released,
        msg.WorkerStanding,
        msg.Wake,
        msg.NextDue,
        msg.ServeVersions,
        msg.StatusWanted,
    ),
    receives=(
        msg.WorkerStarted,
        msg.WorkerStopped,
        msg.WorkerEnded,
        msg.Asleep,
        msg.Awake,
        msg.LookAtQueues,
        msg.LookAtDue,
        msg.LookAtVersions,
        msg.LookAtDaemons,
        msg.StatusPart,
        msg.ConnectionRefused,
    ),
    depends_on=lambda settings: (settings.recovery, settings.shortest_heartbeat_s),
    summary=_sweeper_summary,
)
HTTP = ChildKind(
    "http",
    sends=(msg.Ready, msg.Heartbeat, msg.Failed),
    depends_on=lambda settings: settings.http,
    summary=_http_summary,
    is_observer=True,
    is_wanted=lambda settings: bool(settings.http.listen),
)
EXPORTER = ChildKind(
    "exporter",
    sends=_COMMON,
    depends_on=lambda settings: (settings.telemetry.ratio, settings.service_name),
    summary=_exporter_summary,
    is_observer=True,
    is_wanted=lambda settings: settings.telemetry.is_on,
)
DISCOVERY = ChildKind("discovery", sends=(msg.Found,), is_group=True)
CHECK = ChildKind("check", sends=(msg.Found,))

TREE_KINDS = (LISTENER, WORKER, SWEEPER)  # in start order; others are no part of the tree
OBSERVER_KINDS = (HTTP, EXPORTER)  # beside the tree
SINGLE_KINDS = (*(kind for kind in TREE_KINDS if not kind.is_group), *OBSERVER_KINDS)
