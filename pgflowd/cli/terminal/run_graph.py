"""
Run picture: a run as boxes and arrows, with the state of each step in it.

Made of the flow's graph and what the database says of the run's steps and tasks. Beside the
picture stands what will happen next, below it what went wrong last. Times come as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from pgflowd.cli.terminal.marks import mark
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.graph.graph import SIGNS, Graph, Node, draw
from pgflowd.core.text import ago, between, lasted, spoken

if TYPE_CHECKING:
    from pgflowd.db.overview import StepTasks, Trouble
    from pgflowd.db.runs import RunWithStates, StepState

_STATE = re.compile(rf"(?:(?<=│ )|(?<=  ))([{''.join(SIGNS.values())}]) [^│]*?(?=\s*│|  |$)")
_STATUS_OF = {sign: status for status, sign in SIGNS.items()}
_OWN_FRAME = re.compile(r'File "(?P<file>[^"<][^"]*)", line (?P<line>\d+)(?P<is_last_call_last>,?)')
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages|pgflowd|python3\.\d+)/")


def graph_of_run(run: RunWithStates, steps: Sequence[StepTasks], now: datetime) -> Graph:
    """The graph of a run's flow, with states."""
    return Graph(tuple(_node(step, run.steps.get(step.step_slug), run, now) for step in steps))


def painted(graph: Graph, screen: Screen) -> str:
    """The picture in colours, as wide and with the signs that this screen has."""
    with_signs = draw(graph, width=screen.width)
    text = with_signs if screen.unicode else draw(graph, width=screen.width, utf8=False)
    if not screen.colour:
        return text
    pairs = zip(with_signs.splitlines(), text.splitlines(), strict=True)
    return "\n".join(_in_colour(signs, line, screen) for signs, line in pairs)


def place_of(traceback: str | None) -> str | None:
    """Where in the user's own code an error was raised."""
    frames = list(_OWN_FRAME.finditer(traceback or ""))
    own = [match for match in frames if not _LIBRARY.search(match["file"])]
    if not own:
        return None
    last = own[-1 if own[0]["is_last_call_last"] else 0]  # a stack of a runner is upside down
    return f"{last['file']}:{last['line']}"


def last_error(
    run: RunWithStates, troubles: Sequence[Trouble], now: datetime
) -> tuple[str, str | None] | None:
    """What went wrong last, and where in the user's code."""
    told = [one for one in troubles if one.outcome != "released"]
    if told:
        last = told[-1]
        which = f"#{last.task_index}" if last.task_index else ""
        text = last.error or last.outcome.replace("_", " ")
        head = f"{last.step_slug}{which}, attempt {last.attempt}, {ago(last.ended_at, now)}"
        return f"{head}: {text}", place_of(last.traceback)
    failed = [state for state in run.steps.values() if state.status == "failed" and state.error]
    return (f"{failed[-1].step_slug}: {failed[-1].error}", None) if failed else None


def _node(step: StepTasks, state: StepState | None, run: RunWithStates, now: datetime) -> Node:
    status = state.status if state else "created"
    if run.status == "cancelled" and status == "failed":
        status = "cancelled"
    return Node(
        slug=step.step_slug,
        deps=tuple(step.deps),
        is_map=step.step_type == "map",
        status=status,
        detail=_detail(step, state, status, now),
        note=_note(step, now) if status == "started" and not run.has_ended else "",
    )


def _detail(step: StepTasks, state: StepState | None, status: str, now: datetime) -> str:
    """What stands behind the sign: how long it took or takes, tasks, and attempts beyond one."""
    if state is None or state.started_at is None:
        return status
    ended = state.completed_at or state.failed_at or state.skipped_at
    took_s = between(state.started_at, ended or now) or 0.0
    words = [lasted(took_s) if ended else _so_far(took_s)]
    if status == "skipped":
        words = ["skipped"]
    elif step.queued and not step.running and step.tasks == 1:
        return "waits"
    if step.tasks > 1:
        words.append(f"{step.completed}/{step.tasks}" if not ended else f"{step.tasks} tasks")
    elif step.attempts > 1:
        words.append(f"{step.attempts}/{step.max_attempts}")
    return "  ".join(words)


def _so_far(seconds: float) -> str:
    """How long something takes already: whole seconds, since more would be old at once."""
    return f"{int(seconds)}s" if seconds < 60 else lasted(seconds)


def _note(step: StepTasks, now: datetime) -> str:
    """What will happen next."""
    words = []
    if step.attempts > 1 or (step.queued and step.attempts):
        upcoming = step.attempts + (1 if step.queued and not step.running else 0)
        words.append(f"attempt {min(upcoming, step.max_attempts)} of {step.max_attempts}")
    if step.running_since is not None:
        left_s = step.timeout_s - (now - step.running_since).total_seconds()
        words.append(f"timeout in {spoken(round(left_s))}" if left_s > 0 else "past its timeout")
    elif step.next_at is not None:
        left_s = (step.next_at - now).total_seconds()
        words.append(f"next in {spoken(round(left_s))}" if left_s >= 0.5 else "waits for a worker")
    return ", ".join(words)


def _in_colour(signs: str, line: str, screen: Screen) -> str:
    """Paint the states of a line; `signs` is the same line with the signs that tell them."""
    shown, at = "", 0
    for match in _STATE.finditer(signs):
        colour = mark(screen, _STATUS_OF[match[1]]).colour
        shown += line[at : match.start()]
        shown += screen.paint(line[match.start() : match.end()], colour)
        at = match.end()
    return shown + line[at:]
