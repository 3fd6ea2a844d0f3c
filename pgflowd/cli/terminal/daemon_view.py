"""Shows the daemons of all machines on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import DASH, Screen, TableCell
from pgflowd.cli.terminal.status_view import problem_lines, status_lines, tree_lines
from pgflowd.core.documents.daemons import ListedDaemon, database_text, is_alone, silence
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import DaemonState, Marks
from pgflowd.core.text import duration

TITLES = (
    "NAME", "HOST", "STATE", "VERSION", "UP", "HEARTBEAT", "FLOWS", "RUNNING", "RESTARTS",
    "DATABASE",
)  # fmt: skip
_LOSING = ("DATABASE", "VERSION", "RESTARTS", "RUNNING", "UP", "FLOWS", "HEARTBEAT")


def print_daemons(app: App, found: Sequence[ListedDaemon]) -> None:
    """Daemons as a table, and below it what is to be known of silent ones."""
    for line in daemon_lines(found, app.out):
        app.print(line)
    if app.verbose:
        for each in found:
            for line in ["", *_head(each, app.out), *_tree(each, app)]:
                app.print(line)
    elif any(each.state is DaemonState.DEGRADED for each in found):
        app.note("`pgflowd daemons show NAME@HOST` shows what is wrong with one that is degraded")


def daemon_lines(found: Sequence[ListedDaemon], screen: Screen) -> list[str]:
    table = screen.table(TITLES, [_row(each, screen) for each in found], losing=_LOSING)
    return [*table.splitlines(), *_silent_lines(found, found, screen)]


def print_daemon(app: App, found: ListedDaemon, all_daemons: Sequence[ListedDaemon]) -> None:
    """A daemon as its own machine shows it, with its processes."""
    for line in [*_head(found, app.out), *_silent_lines([found], all_daemons, app.out)]:
        app.print(line)
    for line in status_lines(dict(found.status), app.out, is_full=True):
        app.print(app.hide(line))
    for line in tree_lines(dict(found.status), app.out, with_ids=True):
        app.print(line)


def _head(each: ListedDaemon, screen: Screen) -> list[str]:
    told = f"as told {duration(round(each.age_s))} ago"
    text = f"{one_line(each.place)} {each.daemon_id} {told}"
    return screen.wrapped(text, indent=2)


def _tree(each: ListedDaemon, app: App) -> list[str]:
    lines = tree_lines(dict(each.status), app.out, with_ids=True)
    return [*lines, *(app.hide(line) for line in problem_lines(each.problems, app.out))]


def _silent_lines(
    shown: Sequence[ListedDaemon], all_daemons: Sequence[ListedDaemon], screen: Screen
) -> list[str]:
    alone = is_alone(all_daemons)
    return [
        line
        for each in shown
        if each.is_silent
        for line in screen.wrapped(
            f"{one_line(each.place)}: {silence(each, is_alone=alone)}",
            head=f"{screen.marked(Marks.FAILED)} ",
            indent=2,
        )
    ]


def _row(each: ListedDaemon, screen: Screen) -> list[str | TableCell]:
    dash = screen.sign(DASH)
    heartbeat = f"{duration(round(each.age_s))} ago"
    if each.is_silent:
        state = screen.cell(Marks.FAILED, " silent")
        return [each.name, each.host, state, each.version, dash, heartbeat, *[dash] * 4]
    restarts = "{} of {}".format(*each.restarts)
    return [
        each.name,
        each.host,
        screen.cell(each.state.mark, f" {each.state}"),
        each.version,
        dash if each.up_s is None else duration(each.up_s),
        heartbeat,
        _flows(each) or dash,
        f"{each.running} of {each.most_running}",
        restarts,
        database_text(each) or dash,
    ]


def _flows(each: ListedDaemon) -> str:
    return ", ".join(f"{count} {state}" for state, count in each.flow_states.items())
