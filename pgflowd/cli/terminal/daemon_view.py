"""
Shows daemons on a terminal: the status document of one, for `status` and `tree`, and all machines'.

Signs carry the meaning and colours help. A narrow terminal loses columns. Text from outside stays
on its line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import BAR, NEXT, Screen, TableCell, columns, text_width
from pgflowd.cli.terminal.texts import list_lines
from pgflowd.core.documents.daemons import (
    NOT_RUNNING,
    Daemons,
    FlowStatus,
    ListedDaemon,
    database_text,
)
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState, Marks, child_mark
from pgflowd.core.supervision.kinds import OBSERVER_KINDS, SINGLE_KINDS, TREE_KINDS, ChildKind
from pgflowd.core.text import counted, duration, short_id

FLOW_COLUMNS = (
    "slug pid running queued waiting oldest_queued_s completed_1m failed_1m p50_s p95_s restarts"
)
LOSING = "p50_s restarts oldest_queued_s p95_s completed_1m failed_1m waiting queued running"
_BAR = 10  # characters of the bar of running tasks
DAEMON_COLUMNS = "name host state version up_s heartbeat_at flow_states running restarts database"
_DAEMON_LOSING = "database version restarts running up_s flow_states heartbeat_at"


def status_lines(status: dict[str, Any], screen: Screen, *, is_full: bool = False) -> list[str]:
    """The screen; unless it is full, without flows that undo others and have nothing to do."""
    flows = [flow for flow in status["flows"] if is_full or not is_idle_undo(flow)]
    parts = [
        f"pgflowd {status['name']}  {status['version']} ",
        screen.marked(DaemonState(status["state"]).mark, f" {status['state']}"),
        f"up {duration(status['up_s'])}",
        f"pid {status['pid']}",
    ]
    lines = _packed("", parts, screen)
    lines += database_lines(status["database"], screen)
    for kind in _present(SINGLE_KINDS, status):
        first, *more = kind.summary(status[kind.name])
        mark = screen.marked(child_mark(status[kind.name]["state"]))
        lines += _packed(f" {kind.name:<10}", [f"{mark} {first}".rstrip(), *more], screen)
    inner = screen if screen.width is None else replace(screen, width=screen.width - 1)
    lines += [f" {line}" for line in flow_lines(flows, inner)]
    ages = [flow["age_s"] for flow in flows if flow.get("age_s") is not None]
    if ages:
        lines.append(f" these numbers are up to {duration(max(1.0, max(ages)))} old")
    for flow in flows:
        if text := _old_version(flow):
            lines += screen.wrapped(f"{flow['slug']}: {text}", head=" ", indent=3)
    parked = {flow["slug"] for flow in status["flows"] if flow["state"] == ChildState.PARKED.value}
    return lines + problem_lines(status["problems"], screen, parked)


def _present(kinds: Sequence[ChildKind], status: Mapping[str, Any]) -> list[ChildKind]:
    """Those of the kinds that the config wants; a daemon may be older than this command."""
    off = (None, ChildState.DISABLED.value)
    return [kind for kind in kinds if status.get(kind.name, {}).get("state") not in off]


def is_idle_undo(flow: Mapping[str, Any]) -> bool:
    """Whether it undoes runs of another flow, is well, and has nothing to do."""
    is_well = flow["state"] in (ChildState.ASLEEP.value, ChildState.UP.value, NOT_RUNNING)
    has_work = flow["running"] or flow["queued"] or flow.get("waiting")
    return bool(flow.get("undoes")) and is_well and not has_work


def database_lines(database: dict[str, Any], screen: Screen) -> list[str]:
    """What is known about the database."""
    sign = screen.marked(DatabaseState(database["state"]).mark)
    parts = [f"{sign} {database['state']}"]
    if database.get("server"):
        parts = [f"{sign} PostgreSQL {one_line(str(database['server']), 60)}"]
        if database.get("place"):
            parts[0] += f" at {one_line(str(database['place']), 120)}"
        if database.get("rtt_s") is not None:
            parts.append(duration(database["rtt_s"]))
        for name in ("pgmq", "schema"):
            if database.get(name) is not None:
                parts.append(f"{name} {one_line(str(database[name]), 40)}")
        if database.get("clock_skew_s") is not None:
            parts.append(f"clock {round(database['clock_skew_s'] * 1000):+} ms")
    return _packed(" database  ", parts, screen)


def problem_lines(
    problems: Sequence[dict[str, Any]], screen: Screen, parked: Collection[str] = ()
) -> list[str]:
    """The problems, each with the next step."""
    lines = []
    for each in problems:
        flow, code = each.get("flow"), each.get("code")
        subject = flow or ""
        if flow in parked:
            subject = f"{flow} is parked:"
        elif flow and code:
            subject = f"{flow}:"
        then = f"  {screen.sign(NEXT)} {each['next']}" if each.get("next") else ""
        words = [subject, code or "", each.get("text") or "", then]
        text = one_line(" ".join(filter(None, words)), 400)
        lines += screen.wrapped(text, head=f" {screen.marked(Marks.WARNING)} ", indent=3)
    return lines


def tree_lines(status: dict[str, Any], screen: Screen, *, with_ids: bool = False) -> list[str]:
    """The processes as a tree; with the ids of workers, which a restart takes."""
    root = status["supervisor"]
    budget = f"restarts {root['restarts']} of {root['max_restarts']}"
    period = f"in {root['max_period_s']:g} s"
    flows = status["flows"]
    states = Counter(flow["state"] for flow in flows)
    width = max([8, *(text_width(one_line(flow["slug"], 80)) + 3 for flow in flows)])
    parts = [f"supervisor {status['pid']}", root["strategy"], f"{budget} {period}"]
    lines = _packed("", parts, screen)
    fork, end, past = screen.branches
    kinds = [*TREE_KINDS, *_present(OBSERVER_KINDS, status)]
    for kind in kinds:
        branch, below = (end, " ") if kind is kinds[-1] else (fork, past)
        if not kind.is_group:
            parts = _member(kind.name, width, status[kind.name], screen)
            lines += _packed(f"{branch} ", parts, screen, f"{below}  ")
            continue
        group = f"{screen.marked(child_mark(_group_state(flows)))} {_padded('workers', width)}"
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        parts = [group, "one_for_one", *filter(None, [counts])]
        lines += _packed(f"{branch} ", parts, screen, f"{below}    ")
        for flow in flows:
            inner, under = (end, " ") if flow is flows[-1] else (fork, past)
            ids = [f"id {short_id(flow['worker_id'])}"] if with_ids and flow["worker_id"] else []
            parts = _member(flow["slug"], width - 3, flow, screen, ids)
            lines += _packed(f"{below}  {inner} ", parts, screen, f"{below}  {under}  ")
    return lines


def _packed(head: str, parts: Sequence[str], screen: Screen, below: str | None = None) -> list[str]:
    """The parts side by side, on as many lines as a narrow terminal needs."""
    below = " " * len(head) if below is None else below
    whole = head + "   ".join(parts)
    if screen.fits(whole):
        return [whole]
    room = max((screen.width or 0) - len(head), 20)
    lines: list[str] = []
    for part in parts:
        if lines and columns(f"{lines[-1]}   {part}") <= room:
            lines[-1] += f"   {part}"
        else:
            lines += [part] if columns(part) <= room else screen.wrapped(part, width=room)
    return [f"{below if index else head}{line}" for index, line in enumerate(lines)]


def _padded(text: str, width: int) -> str:
    return text + " " * (width - text_width(text))


def _member(
    name: str, width: int, child: dict[str, Any], screen: Screen, ids: Sequence[str] = ()
) -> list[str]:
    """A process, in words."""
    state = child["state"]
    parts = [f"{screen.marked(child_mark(state))} {_padded(one_line(name, 80), width)}"]
    if state == ChildState.PARKED.value:
        retry_s, parked_s = child.get("retry_in_s"), child.get("parked_s")
        next_try = "next try on reload" if retry_s is None else f"next try in {duration(retry_s)}"
        code = one_line(str((child.get("error") or {}).get("code")), 40)
        parts.append(f"{state}, parked {_duration(parked_s, '?')} ago: {code}, {next_try}")
    elif state == ChildState.ASLEEP.value:
        parts.append(f"{state} {_duration(child['asleep_s'])}".rstrip())
        if child["next_due_in_s"] is not None:
            parts.append(f"next task in {duration(child['next_due_in_s'])}")
    elif child["pid"]:
        parts += [str(child["pid"]), f"{state} {_duration(child['up_s'])}".rstrip()]
    else:
        parts.append(state)
    if child.get("zygote"):
        parts += [f"zygote {child['zygote']}", counted(child.get("runners", 0), "runner")]
    parts += ids
    if child.get("restarts"):
        exits = child.get("exits") or ["?"]
        parts.append(f"{counted(child['restarts'], 'restart')}: {one_line(exits[-1], 80)}")
    return parts


def flow_lines(
    flows: Sequence[Mapping[str, Any]],
    screen: Screen,
    names: str = FLOW_COLUMNS,
    losing: str = LOSING,
    *,
    kind: type = FlowStatus,
    **shown: Any,
) -> list[str]:
    """The flows of a status as a table; of a parked one no numbers are known."""
    nothing = dict.fromkeys([*FLOW_COLUMNS.split()[2:], "max_concurrency"])
    parked = ChildState.PARKED.value
    known = [{**flow, **nothing} if flow["state"] == parked else flow for flow in flows]
    shown = {
        "slug": lambda flow: f"{flow['slug']}{' (old)' * bool(_old_version(flow))}",
        "pid": lambda flow: worker_cell(flow, screen),
        "running": lambda flow: TableCell(_bar(flow["running"], flow["max_concurrency"], screen)),
        **shown,
    }
    return list_lines(screen, known, names, losing, kind=kind, **shown)


def worker_cell(flow: Mapping[str, Any], screen: Screen) -> TableCell:
    """The process of a flow's worker and how long it is so, or the state of one without."""
    state = flow["state"]
    age_s = flow["asleep_s"] if state == ChildState.ASLEEP.value else flow["up_s"]
    text = f" {flow['pid'] or state}  {_duration(age_s)}".rstrip()
    return screen.cell(child_mark(state), f" {state}" if state == ChildState.PARKED.value else text)


def _old_version(flow: Mapping[str, Any]) -> str:
    """Of which flow it is an old version, and for how many runs. A daemon may be older than us."""
    if not flow.get("old_version_of"):
        return ""
    runs = counted(flow["open_runs"], "open run")
    return f"old version of {flow['old_version_of']}, {runs}"


def _bar(running: int, most: int | None, screen: Screen) -> str:
    if not most:
        return ""
    shown = f"{running}/{most}"
    if screen.is_narrow:
        return shown
    full = min(_BAR, round(running / most * _BAR))
    on, off = map(screen.sign, BAR)
    return f"{on * full}{off * (_BAR - full)} {shown}"


def _group_state(flows: Sequence[dict[str, Any]]) -> str:
    """All workers up or asleep, all parked, or neither."""
    states = {flow["state"] for flow in flows} - {ChildState.DISABLED.value}
    if len(states) > 1:
        states.discard(ChildState.ASLEEP.value)  # as well as those that are up
    only = states.pop() if len(states) == 1 else ""
    settled = (ChildState.UP, ChildState.ASLEEP, ChildState.PARKED)
    return only if only in settled else ChildState.RESTARTING.value


def _duration(seconds: float | None, absent: str = "") -> str:
    return absent if seconds is None else duration(seconds)


def print_daemons(app: App, found: Sequence[ListedDaemon]) -> None:
    """Daemons as a table, and below it what is to be known of silent ones."""
    app.print_lines(daemon_lines(found, app.out))
    if app.verbose:
        for each in found:
            tree = tree_lines(dict(each.status), app.out, with_ids=True)
            app.print_lines(["", *_head(each, app.out), *tree])
            app.print_lines(map(app.hide, problem_lines(each.problems, app.out)))
    elif any(each.state is DaemonState.DEGRADED for each in found):
        app.note("`pgflowd daemons show NAME@HOST` shows what is wrong with one that is degraded")


def daemon_lines(found: Sequence[ListedDaemon], screen: Screen) -> list[str]:
    def known(text: Callable[[ListedDaemon], Any]) -> Callable[[ListedDaemon], Any]:
        """Of a silent daemon nobody knows it."""
        return lambda each: None if each.is_silent else text(each)

    table = list_lines(
        screen,
        found,
        DAEMON_COLUMNS,
        _DAEMON_LOSING,
        kind=ListedDaemon,
        cutting=False,
        state=lambda each: screen.cell(Marks.FAILED, " silent") if each.is_silent else each.state,
        heartbeat_at=lambda each: f"{duration(round(each.age_s))} ago",
        flow_states=known(
            lambda each: ", ".join(f"{count} {state}" for state, count in each.flow_states.items())
        ),
        running=known(lambda each: f"{each.running} of {each.most_running}"),
        restarts=known(lambda each: "{} of {}".format(*each.restarts)),
        database=known(database_text),
    )
    return [*table, *_silent_lines(found, found, screen)]


def print_daemon(app: App, found: ListedDaemon, all_daemons: Sequence[ListedDaemon]) -> None:
    """A daemon as its own machine shows it, with its processes."""
    app.print_lines([*_head(found, app.out), *_silent_lines([found], all_daemons, app.out)])
    status = dict(found.status)
    app.print_lines(map(app.hide, status_lines(status, app.out, is_full=True)))
    app.print_lines(tree_lines(status, app.out, with_ids=True))


def _head(each: ListedDaemon, screen: Screen) -> list[str]:
    told = f"as told {duration(round(each.age_s))} ago"
    return screen.wrapped(f"{one_line(each.place)} {each.daemon_id} {told}", indent=2)


def _silent_lines(
    shown: Sequence[ListedDaemon], all_daemons: Sequence[ListedDaemon], screen: Screen
) -> list[str]:
    lines, head = [], f"{screen.marked(Marks.FAILED)} "
    for each in shown:
        if each.is_silent:
            text = Daemons(all_daemons).silence(each)
            lines += screen.wrapped(f"{one_line(each.place)}: {text}", head=head, indent=2)
    return lines
