"""
The lines that `pgflowd top` shows, of a state and what was read. Pure.

A picture has a head, rows or a text, problems, and at the bottom the keys or a question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pgflowd.cli.terminal.daemon_view import problem_lines
from pgflowd.cli.terminal.screen import Screen, columns
from pgflowd.cli.top.flow_rows import FlowRow, flow_rows, flow_table, totals
from pgflowd.cli.top.model import State, TopVerb, TopView
from pgflowd.cli.top.printed_page import PrintedPage, event_lines, list_lines, run_lines
from pgflowd.cli.top.seen import MAX_RUNS, Seen
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import DaemonState, Marks
from pgflowd.core.supervision.tree import ChildState
from pgflowd.core.text import between, duration, short_id

_MAX_PROBLEMS = 3  # of them, as many lines as a screen can spare
HELP = (
    (
        "arrows, j, k",
        "choose a row, or move a text; also the keys for pages, Home and End, g and G",
    ),
    ("Enter", "the runs of the flow; the chosen run as `pgflowd runs show` has it"),
    ("Escape, Backspace", "back"),
    ("/", "only flows with this in their name; of runs a status, or what is in error, label or id"),
    ("s", "sort by another column"),
    ("p", "pause the flow, or let it go on"),
    ("f", "follow the run: what happens in it, the newest below"),
    ("c", "cancel the run"),
    ("r", "retry the failed steps of the run"),
    ("Space", "stop updates, and go on"),
    ("Ctrl-Z", "back to the shell; `fg` comes back here"),
    ("q, Ctrl-C", "quit"),
)


@dataclass(frozen=True)
class Body:
    """What is between head and keys: titles that stay, lines that move, and their rows' keys."""

    titles: Sequence[str]
    lines: Sequence[str]
    keys: Sequence[str] = ()
    empty: str = ""  # what is said where there is no line


@dataclass(frozen=True)
class Times:
    """The clock on the wall, and the one by which ages are known."""

    wall: datetime
    monotonic: float


def body(state: State, seen: Seen, screen: Screen, secrets: set[str]) -> Body:
    """What the state shows of what was read."""
    if state.shows_help:
        return Body((), [line for key, text in HELP for line in _help(key, text, screen)])
    inner = replace(screen, width=(screen.width or 80) - 1)
    if state.view is TopView.FLOWS:
        return _flows_body(flow_rows(seen.status, seen.facts, state.filter, state.sort), state,
                           seen, inner)  # fmt: skip
    page = PrintedPage(inner if state.view is TopView.RUNS else screen, secrets)
    if state.view is TopView.RUNS:
        return _runs_body(page, state, seen)
    if state.view is TopView.RUN:
        lines = run_lines(page, seen.details) if seen.details is not None else []
        return Body((), lines, empty=_unread(seen))
    return Body((), event_lines(page, seen.entries or ()), empty=_unread(seen))


def paused_flow(state: State, seen: Seen) -> bool:
    """Whether the chosen flow is paused."""
    rows = flow_rows(seen.status, seen.facts)
    return any(row.is_paused for row in rows if row.slug == state.flow)


def room_for(screen: Screen, height: int, state: State, seen: Seen, shown: Body, at: Times) -> int:
    """How many lines may move between head and bottom."""
    bottom = _bottom(state, seen, screen, at, height)
    return max(height - 1 - len(shown.titles) - len(bottom), 1)


def picture(
    state: State, seen: Seen, screen: Screen, height: int, shown: Body, at: Times
) -> list[str]:
    """All lines of the screen."""
    room = room_for(screen, height, state, seen, shown, at)
    lines = list(shown.lines) or [f" {shown.empty}"]
    if state.is_list and not state.shows_help and shown.lines:
        lines = [_row(line, row == state.place, screen) for row, line in enumerate(lines)]
        top = max(min(state.place - room // 2, len(lines) - room), 0)
    else:
        top = min(state.scroll, max(len(lines) - room, 0))
        if state.view is TopView.EVENTS and not state.shows_help:
            top = max(len(lines) - room, 0) - top
    moving = lines[top : top + room]
    moving += [""] * (room - len(moving))
    titles = [f" {line}" for line in shown.titles]
    bottom = _bottom(state, seen, screen, at, height)
    return [_head(state, seen, screen, at), *titles, *moving, *bottom]


def _flows_body(rows: Sequence[FlowRow], state: State, seen: Seen, screen: Screen) -> Body:
    titles, *lines = flow_table(rows, screen)
    empty = _unread(seen)
    if seen.status is not None or seen.database_at is not None:
        empty = "there are no flows here; `pgflowd flows deploy` creates them"
    if state.filter:
        empty = f"no flow has {state.filter!r} in its name; Escape shows all"
    return Body([titles], lines, [row.slug for row in rows], empty)


def _runs_body(page: PrintedPage, state: State, seen: Seen) -> Body:
    if not seen.runs or seen.now is None:
        none = "no run of it fits; Escape shows all" if state.filter else "it has no runs yet"
        return Body((), (), (), _unread(seen) if seen.runs is None else none)
    runs, now = list(seen.runs), seen.now
    if state.sort == "status":
        runs.sort(key=lambda run: run.status)
    elif state.sort == "longest":
        runs.sort(key=lambda run: -(between(run.started_at, run.ended_at or now) or 0.0))
    titles, *lines = list_lines(page, runs, now)
    return Body([titles], lines, [str(run.run_id) for run in runs])


def _unread(seen: Seen) -> str:
    return "nothing could be read yet" if seen.database_error else "reading"


def _row(line: str, is_chosen: bool, screen: Screen) -> str:
    if not is_chosen:
        return f" {line}"
    return screen.paint(">", "cyan", bold=True) + (line if not screen.colour else _bold(line))


def _bold(line: str) -> str:
    """A line that stays bold behind its colours."""
    return "\x1b[1m" + line.replace("\x1b[0m", "\x1b[0m\x1b[1m") + "\x1b[0m"


def _head(state: State, seen: Seen, screen: Screen, at: Times) -> str:
    """What is shown, as much of it as there is room for, and the time."""
    status = seen.status
    parts = [f" pgflowd {one_line(str(status['name']), 40)}" if status else " pgflowd"]
    if status is not None:
        word = DaemonState(status["state"])
        parts += [screen.marked(word.mark, f" {word}"), f"up {duration(status['up_s'])}"]
    else:
        parts.append(screen.marked(Marks.OFF, " no daemon here"))
    if state.view is TopView.FLOWS:
        parts += totals(flow_rows(status, seen.facts))
    else:
        what = {TopView.RUNS: "runs of", TopView.RUN: "run of", TopView.EVENTS: "events of"}[
            state.view
        ]
        parts.insert(1, f"{what} {one_line(state.flow or '', 60)}")
        if state.view is TopView.EVENTS:
            parts.insert(2, f"run {short_id(state.run or '')}")
    if state.view is TopView.RUNS and seen.runs is not None:
        newest = "newest " if len(seen.runs) == MAX_RUNS else ""
        parts.append(f"{newest}{len(seen.runs)}")
    clock = (
        f"{screen.sign(Marks.PAUSED) + ' stopped  ' if state.is_stopped else ''}{at.wall:%H:%M:%S} "
    )
    room = (screen.width or 80) - len(clock) - 2
    line = ""
    for part in parts:
        longer = f"{line}   {part}" if line else part
        if line and columns(longer) > room:
            break
        line = longer
    if columns(line) > room:
        line = screen.cut(line, max(room, 8))
    return f"{line}{' ' * max(room + 2 - columns(line), 1)}{clock}"


def _bottom(state: State, seen: Seen, screen: Screen, at: Times, height: int) -> list[str]:
    """Problems, then a question, a filter or a note, then the keys."""
    if state.shows_help:
        return [_keys(state, screen)]
    lines = _troubles(seen, screen, at)
    if state.view is TopView.FLOWS and seen.status is not None:
        flows, problems = seen.status["flows"], seen.status["problems"]
        parked = {flow["slug"] for flow in flows if flow["state"] == ChildState.PARKED.value}
        lines += problem_lines(problems[:_MAX_PROBLEMS], screen, parked)
        more = len(problems) - _MAX_PROBLEMS
        lines += [f"   {more} more: `pgflowd status` shows all"] if more > 0 else []
    lines = lines[: max(height // 3, 1)]
    if state.question is not None:
        target = state.question.target
        name = (
            short_id(target) if state.question.verb in (TopVerb.CANCEL, TopVerb.RETRY) else target
        )
        lines.append(screen.paint(f" {state.question.verb.value} {one_line(name)}? y/n", "yellow"))
    elif state.is_typing:
        lines.append(f" /{one_line(state.filter)}_")
    elif state.note:
        lines += screen.wrapped(one_line(state.note), head=" ", indent=1)[:3]
    elif state.filter:
        lines.append(f" /{one_line(state.filter)}   Escape shows all")
    return [*lines, _keys(state, screen)]


def _troubles(seen: Seen, screen: Screen, at: Times) -> list[str]:
    """What cannot be read, and how old the numbers are."""
    lines: list[str] = []
    is_from_daemon = seen.status is not None
    for error, read_at in (
        (seen.daemon_error, seen.status_at if is_from_daemon else None),
        (seen.database_error, seen.database_at),
    ):
        if error is None:
            continue
        text = error
        if read_at is not None:
            text = f"numbers are {duration(round(at.monotonic - read_at))} old: {error}"
        elif error is seen.daemon_error:
            text = f"numbers are the database's: {error}"
        lines += screen.wrapped(text, head=f" {screen.marked(Marks.WARNING)} ", indent=3)
    return lines


def _keys(state: State, screen: Screen) -> str:
    """The keys that do something here, as many as there is room for."""
    if state.shows_help:
        return screen.paint(" arrows move   others go back   q quit", None, bold=True)
    sort = f"s sort: {state.sort}"
    runs = ["f follow", "c cancel", "r retry"]
    stop = "Space go on" if state.is_stopped else "Space stop updates"
    here = {
        TopView.FLOWS: ["Enter runs", "/ filter", sort, "p pause flow"],
        TopView.RUNS: ["Enter show", "Esc back", "/ filter", sort, *runs, "p pause flow"],
        TopView.RUN: ["Esc back", *runs, "p pause flow"],
        TopView.EVENTS: ["Esc back", "c cancel", "r retry"],
    }[state.view]
    line, last = "", "   ? help   q quit"
    for part in [*here, stop]:
        if len(line) + 3 + len(part) + len(last) <= (screen.width or 80):
            line += f"   {part}" if line else f" {part}"
    return screen.paint(f"{line}{last}", None, bold=True)


def _help(key: str, text: str, screen: Screen) -> list[str]:
    """A key and what it does; below it where it is narrow."""
    indent = 20 if (screen.width or 80) >= 60 else 3
    return screen.wrapped(text, head=f" {key:<18} ", indent=indent, whole=True)
