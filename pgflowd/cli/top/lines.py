"""
The lines that `pgflowd top` shows of what was read. Pure.

Flows, runs and events are printed by the functions of the commands, so they look the same here. A
flow is an object as `status --json` has it; where no daemon is, one is made of what the database
knows, without what only a daemon knows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.daemon_view import (
    FLOW_COLUMNS,
    LOSING,
    flow_lines,
    is_idle_undo,
    problem_lines,
    worker_cell,
)
from pgflowd.cli.terminal.history_view import TimelineWriter
from pgflowd.cli.terminal.list_view import print_runs
from pgflowd.cli.terminal.run_view import print_run
from pgflowd.cli.terminal.screen import Screen, TableCell, columns
from pgflowd.cli.top.source import MAX_RUNS, FlowFacts, Seen, TopSubject, TopView
from pgflowd.core.documents import ListColumn
from pgflowd.core.documents.daemons import NOT_RUNNING, FlowStatus
from pgflowd.core.documents.flows import ListedFlow, RunBucket
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import ChildState, DaemonState, Marks
from pgflowd.core.text import between, duration, short_id

SORTS = {
    TopView.FLOWS: ("name", "queue", "running", "oldest", "failures"),
    TopView.RUNS: ("newest", "status", "longest"),
}
_MAX_PROBLEMS = 3  # of them, as many lines as a screen can spare
_LEVELS = ("▁▂▃▄▅▆▇█", "_.:-=+*#")
_NUMBERS = {
    "queue": "queued", "running": "running", "oldest": "oldest_queued_s", "failures": "failed_1m",
}  # fmt: skip


class TopFlow(FlowStatus):
    """A flow as the status has it, and what the status has not."""

    hour: Annotated[str, ListColumn("LAST HOUR")]


class PrintedPage(App):
    """An `App` that prints to a list, as wide as a screen is."""

    def __init__(self, screen: Screen, secrets: set[str]) -> None:
        super().__init__()
        self.secrets = secrets
        self.lines: list[str] = []
        self._screen = screen

    @property
    def out(self) -> Screen:
        return self._screen

    def print(self, text: str = "", *, cursor: str = "") -> None:
        self.lines += text.split("\n")

    def note(self, text: str) -> None:
        self.lines += self._screen.wrapped(text)


@dataclass(frozen=True)
class Rows:
    """A list: its titles, a line for each row, and the slugs or ids of the rows."""

    titles: str
    lines: Sequence[str]
    keys: Sequence[str]
    empty: str = ""  # what is said where there is no line


def list_rows(subject: TopSubject, seen: Seen, sort: str, page: PrintedPage) -> Rows:
    """The flows, or the runs of one."""
    if subject.kind is TopView.FLOWS:
        flows = flow_rows(seen, subject.filter, sort)
        titles, *lines = flow_table(flows, page.out, is_served=seen.status is not None)
        empty = _unread(seen)
        if seen.status is not None or seen.database_at is not None:
            empty = "there are no flows here; `pgflowd flows deploy` creates them"
        if subject.filter:
            empty = f"no flow has {subject.filter!r} in its name; Escape shows all"
        return Rows(titles, lines, [row["key"] for row in flows], empty)
    found, now = seen.of(subject), seen.facts.now
    if not found or now is None:
        none = "no run of it fits; Escape shows all" if subject.filter else "it has no runs yet"
        return Rows("", (), (), _unread(seen) if found is None else none)
    runs = list(found)
    if sort == "status":
        runs.sort(key=lambda run: run.status)
    elif sort == "longest":
        runs.sort(key=lambda run: -(between(run.started_at, run.ended_at or now) or 0.0))
    print_runs(page, runs, now)
    titles, *lines = page.lines
    return Rows(titles, lines, [str(run.run_id) for run in runs])


def text_lines(subject: TopSubject, seen: Seen, page: PrintedPage) -> list[str]:
    """A run as `runs show` shows it, or its events as `runs follow` does."""
    found = seen.of(subject)
    if found is None:
        return [f" {_unread(seen)}"]
    if subject.kind is TopView.RUN:
        print_run(page, found)
    else:
        writer = TimelineWriter(page)
        for entry in found:
            writer.write(entry)
    return page.lines


def head_line(
    subject: TopSubject, seen: Seen, screen: Screen, wall: datetime, stopped: bool
) -> str:
    """What is shown, as much of it as there is room for, and the time."""
    status = seen.status
    parts = [f" pgflowd {one_line(str(status['name']), 40)}" if status else " pgflowd"]
    if subject.kind is not TopView.FLOWS:
        parts.append(f"{subject.kind.value} {one_line(subject.flow, 60)}")
    if subject.kind is TopView.EVENTS:
        parts.append(f"run {short_id(subject.run)}")
    if status is not None:
        word = DaemonState(status["state"])
        parts += [screen.marked(word.mark, f" {word}"), f"up {duration(status['up_s'])}"]
    else:
        parts.append(screen.marked(Marks.OFF, " no daemon here"))
    if subject.kind is TopView.FLOWS:
        parts += totals(flow_rows(seen))
    elif subject.kind is TopView.RUNS and (runs := seen.of(subject)) is not None:
        parts.append(f"{'newest ' if len(runs) == MAX_RUNS else ''}{len(runs)}")
    clock = f"{screen.sign(Marks.PAUSED) + ' stopped  ' if stopped else ''}{wall:%H:%M:%S} "
    room = (screen.width or 80) - len(clock) - 2
    while len(parts) > 1 and columns("   ".join(parts)) > room:
        parts.pop()
    line = "   ".join(parts)
    if columns(line) > room:
        line = screen.cut(line, max(room, 8))
    return f"{line}{' ' * max(room + 2 - columns(line), 1)}{clock}"


def trouble_lines(subject: TopSubject, seen: Seen, screen: Screen, monotonic: float) -> list[str]:
    """What cannot be read, and how old the numbers are; below flows the daemon's problems."""
    lines: list[str] = []
    status_at = seen.status_at if seen.status is not None else None
    for error, read_at, known in (
        (seen.daemon_error, status_at, "numbers are the database's: "),
        (seen.database_error, seen.database_at, ""),
    ):
        if error is not None:
            if read_at is not None:
                known = f"numbers are {duration(round(monotonic - read_at))} old: "
            head = f" {screen.marked(Marks.WARNING)} "
            lines += screen.wrapped(f"{known}{error}", head=head, indent=3)
    if subject.kind is TopView.FLOWS and seen.status is not None:
        flows, problems = seen.status["flows"], seen.status["problems"]
        parked = {flow["slug"] for flow in flows if flow["state"] == ChildState.PARKED.value}
        lines += problem_lines(problems[:_MAX_PROBLEMS], screen, parked)
        more = len(problems) - _MAX_PROBLEMS
        lines += [f"   {more} more: `pgflowd status` shows all"] if more > 0 else []
    return lines


def is_paused(flow: str, seen: Seen) -> bool:
    """Whether a flow is paused."""
    return any(each.paused_at is not None for each in seen.facts.flows if each.flow_slug == flow)


def flow_rows(seen: Seen, text: str = "", sort: str = "name") -> list[dict[str, Any]]:
    """
    The flows of the daemon, else of the database, that have this text in their name: as a status
    has them, with the `key` of the flow in the database, what that has, and the last hour.
    """
    facts, rows = seen.facts, []
    listed = {name: each for each in facts.flows for name in (each.flow_slug, each.title)}
    for flow in seen.status["flows"] if seen.status else _from_database(facts):
        known = listed.get(flow["slug"])
        key = known.flow_slug if known else flow["slug"]
        hour = facts.buckets.get(key, ())
        if text.lower() in key.lower() and not is_idle_undo(flow):
            rows.append({**flow, "key": key, "listed": known, "hour": hour})
    number = _NUMBERS.get(sort, "")
    return sorted(rows, key=lambda row: (-(row.get(number) or 0), str(row["key"])))


def flow_table(rows: Sequence[Mapping[str, Any]], screen: Screen, *, is_served: bool) -> list[str]:
    """A line with titles, and one for each flow."""
    names, shown = FLOW_COLUMNS.removesuffix(" restarts"), {}
    if not is_served:
        names = names.replace(" p50_s p95_s", "")  # which only a daemon knows
        shown["running"] = lambda row: str(row["running"])

    def worker(row: Mapping[str, Any]) -> TableCell:
        """Whether it is paused; without a daemon who serves it, as the database knows it."""
        flow: ListedFlow | None = row["listed"]
        if flow is not None and flow.paused_at is not None:
            return screen.cell(Marks.PAUSED, " paused")
        if flow is None or is_served:
            return worker_cell(row, screen)
        if flow.workers:
            return screen.cell(Marks.UP, f" {flow.workers} alive")
        if flow.is_asleep:
            return screen.cell(Marks.ASLEEP, " asleep")
        return screen.cell(Marks.WARNING if flow.active_runs else Marks.OFF, " no worker")

    return flow_lines(
        rows,
        screen,
        f"{names} hour",
        LOSING.replace("p50_s", "p50_s hour"),
        kind=TopFlow,
        pid=worker,
        hour=lambda row: _chart(row["hour"], screen),
        **shown,
    )


def totals(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What all flows do together, in words."""
    running, most, queued, completed, failed = (
        sum(row.get(key) or 0 for row in rows)
        for key in ("running", "max_concurrency", "queued", "completed_1m", "failed_1m")
    )
    of_most = f"{running} of {most} running" if most else f"{running} running"
    return [of_most, f"{queued} queued", f"{completed + failed}/min"]


def _chart(buckets: Sequence[RunBucket], screen: Screen) -> str:
    """A sign for each piece of the last hour; those without a run are lowest."""
    counts = [bucket.ok + bucket.failed for bucket in buckets]
    most = max(counts, default=0)
    if not most:
        return ""
    levels = _LEVELS[not screen.unicode]
    top = len(levels) - 1
    return "".join(levels[max(round(count / most * top), 1) if count else 0] for count in counts)


def _from_database(facts: FlowFacts) -> list[dict[str, Any]]:
    """The flows, as a status has them."""
    rows = []
    for flow in facts.flows:
        minute = [
            each for each in facts.minute if each.step_slug and each.flow_slug == flow.flow_slug
        ]
        rows.append({
            **dict.fromkeys(("pid", "max_concurrency", "p50_s", "p95_s", "up_s", "asleep_s")),
            "slug": flow.title,
            "undoes": flow.undoes,
            "state": ChildState.ASLEEP.value if flow.is_asleep else NOT_RUNNING,
            "running": flow.running,
            "queued": flow.queued,
            "waiting": flow.waiting,
            "oldest_queued_s": between(flow.oldest_queued_at, facts.now),
            "completed_1m": sum(each.completed for each in minute),
            "failed_1m": sum(each.failures for each in minute),
        })  # fmt: skip
    return rows


def _unread(seen: Seen) -> str:
    return "nothing could be read yet" if seen.database_error else "reading"
