"""
Shows runs and their pictures on a terminal.

The picture of a run is the graph of its flow with the state of each step. A note next to a step
shows when it continues; the last error is below the picture. Nothing here reads a clock.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from pgflowd.cli.app import App
from pgflowd.cli.terminal.list_view import (
    begin_text,
    print_attempts,
    print_checkpoints,
    until_text,
    wait_lines,
)
from pgflowd.cli.terminal.screen import BAR, CUT, Screen
from pgflowd.cli.terminal.texts import error_lines, print_labelled, print_wrapped, traceback_lines
from pgflowd.core.documents.run_tasks import MAX_FAMILY, FamilyMember, branches_of
from pgflowd.core.failure import place_of
from pgflowd.core.graph import Graph, draw
from pgflowd.core.redact import one_line
from pgflowd.core.run_graph import graph_of_run, last_error
from pgflowd.core.statuses import Mark, RunStatus, StepStatus
from pgflowd.core.text import ago, between, brief, counted, duration, short_id
from pgflowd.core.timeline import ends_by, reason, wait_text

if TYPE_CHECKING:
    from pgflowd.core.documents.run_tasks import OpenTask
    from pgflowd.core.documents.runs import RunDetails, RunWithStates

_ERROR_LENGTH = 60  # of an error in a list
_MAX_SHOWN = 5  # of these on a screen
_MARKS: dict[str, Mark] = {each.mark.sign: each.mark for each in (*StepStatus, *RunStatus)}
_STATE = re.compile(rf"(?:(?<=│ )|(?<=  ))([{''.join(_MARKS)}]) [^│]*?(?=\s*│|  |$)")
_MAX_KEPT = 5  # steps of which is said that output is kept
_OLD_S = 10.0  # a progress that was told so long ago has its age beside it


def pause_text(paused_at: datetime, by: str | None, why: str | None, now: datetime) -> str:
    """Since when a run or flow is paused, by whom and why."""
    return f"{ago(paused_at, now)}{f' by {by}' if by else ''}{f': {why}' if why else ''}"


def print_run(app: App, details: RunDetails) -> None:
    """A run: its status and input, its picture, its last error, and its attempts if asked for."""
    app.print_lines(_head(app, details))
    for label, text in _wishes(details):
        if text:
            print_labelled(app, label, text)
    picture = painted(graph_of_run(details.run, details.steps, details.now, details.undos), app.out)
    app.print(textwrap.indent(picture, " ") if app.out.width is None else picture)
    # the output of the run or why it has none, and its last error
    run = details.run
    error, traceback = last_error(run, details.failures, details.now) or ("", None)
    if run.status_before_undo is RunStatus.COMPLETED:
        print_labelled(app, "output", brief(run.output, _room(app, "output")))
    elif run.status_before_undo.is_end and not _is_about(error, reason(run)):
        print_labelled(app, "why", reason(run) or "")
    if error:
        place = place_of(traceback)
        is_new = place and place not in error
        print_labelled(app, "last error", f"{error}   at {place}" if is_new else error)
        app.print_lines(traceback_lines(app, traceback, indent=3))
    for label, text in _told(app, details):
        print_labelled(app, label, text)
    # the tasks that wait, those of a step for the same as one; then signals that nobody got
    maps = {step.step_slug for step in details.steps if step.tasks > 1}
    alike: dict[tuple[str, str], list[OpenTask]] = {}
    for task in details.waits:
        alike.setdefault((task.step_slug, task.waits_for), []).append(task)
    for first, *others in list(alike.values())[:_MAX_SHOWN]:
        index = f"#{first.task_index}" if first.step_slug in maps else ""
        more = f" and {len(others)} more" if others else ""
        head, text = f" {first.step_slug}{index}{more}  ", wait_text(first, details.now)
        app.print_lines(wait_lines(app.out, head, text, ends_by(first), 3))
    if sum(step.waiting for step in details.steps) > 1:
        all_of_them = f"`pgflowd tasks list --run {short_id(run.run_id)}`"
        app.print(app.out.folded(f" all of them: {all_of_them}"))
    for signal in details.unused[:_MAX_SHOWN]:
        payload = app.hide(brief(signal.payload, _ERROR_LENGTH))
        by = f" by {signal.sender}" if signal.sender else ""
        sent = f"{signal.name}, sent {ago(signal.sent_at, details.now)}{by}: {payload}"
        print_labelled(app, "unused signal", sent)
    if details.attempts is not None:
        print_attempts(app, details)
    if details.checkpoints is not None:
        print_checkpoints(app, details.checkpoints, details.now)
    if details.family is not None:
        print_family(app, details.family, details.run.run_id, details.now)


def _wishes(details: RunDetails) -> Iterator[tuple[str, str]]:
    """What its start asked for, and what holds it up; who undoes it, or what it undoes."""
    run = details.run
    labels = "  ".join(f"{name}={value}" for name, value in sorted((run.labels or {}).items()))
    yield "title", one_line(run.title or "")
    yield "labels", one_line(labels)
    yield "started by", one_line(run.created_by or "")
    yield "singleton key", one_line(run.singleton or "")
    blocking = [f"run {short_id(other)}" for other in run.blocked_by or ()]
    more = f" and {len(blocking) - _MAX_SHOWN} more" if blocking[_MAX_SHOWN:] else ""
    yield "waits for", ", ".join(blocking[:_MAX_SHOWN]) + more
    yield "parent", f"run {short_id(run.parent_run_id)}" if run.parent_run_id else ""
    if run.expires_at is not None and not run.has_ended:
        yield "expires", until_text(run.expires_at, details.now)
    if run.paused_at is not None:
        text = pause_text(run.paused_at, run.paused_by, run.pause_reason, details.now)
        yield "paused", one_line(f"{text}; `pgflowd runs resume {short_id(run.run_id)}` ends it")
    yield "trace", one_line(details.trace_url or "")
    yield "undoes", f"run {short_id(run.undo_of)}" if run.undo_of else ""
    if run.undo_wanted_at is None:
        return
    by = ""
    if run.undo_by is not None:
        why = f": {run.undo_reason}" if run.undo_reason else ""
        by = one_line(f"; asked for {ago(run.undo_wanted_at, details.now)} by {run.undo_by}{why}")
    yield "undo", f"{_undo_progress(details)}{by}"
    for step in details.undos.values():
        if step.failed:
            yield "not undone", f"{step.step_slug}: {step.error or 'its undo was not finished'}"
    if run.status is RunStatus.UNDO_FAILED:
        yield "next", f"`pgflowd runs undo {short_id(run.run_id)} --again` undoes what is left"


def _told(app: App, details: RunDetails) -> Iterator[tuple[str, str]]:
    """The progress that running tasks have told of; of which failed steps output is kept."""
    full, empty = map(app.out.sign, BAR)
    for step in details.steps:
        if step.progress is not None and step.running:
            at, text = step.progress.at, step.progress.shown(full, empty)
            if at is not None and (details.now - at).total_seconds() >= _OLD_S:
                text += f", {ago(at, details.now)}"
            yield step.step_slug, one_line(text)
    last = {each.step_slug: each for each in details.failures if each.output_lines}
    for each in list(last.values())[-_MAX_KEPT:]:
        command = f"pgflowd runs output {short_id(details.run.run_id)} --step {each.step_slug}"
        lines = counted(each.output_lines or 0, "line")
        text = f"{lines} of {each.step_slug}#{each.task_index}, attempt {each.attempt}"
        yield "output kept", f"{text}; `{command}`"


def _is_about(error: str, why: str | None) -> bool:
    """Whether an error of a step contains this reason, which reads `step: error`."""
    step, _, text = (why or "").partition(": ")
    return error.startswith(step) and error.endswith(text)


def print_ended(app: App, ended: Sequence[RunWithStates]) -> None:
    """The outputs of completed runs, and the reasons why the others have none."""
    for run in ended:
        name = f"run {short_id(run.run_id)}  "
        if run.status is RunStatus.COMPLETED:
            output = json.dumps(run.output, ensure_ascii=not app.out.unicode)
            app.print(f"{name if len(ended) > 1 else ''}{output}")
        else:
            head = f"{name}{app.out.marked(run.status.mark, f' {run.status}')}"
            print_wrapped(app, head, error_lines(app, reason(run) or "")[0])


def _head(app: App, details: RunDetails) -> list[str]:
    """The run, its flow, its status and its input; on several lines where it is narrow."""
    run, screen = details.run, app.out
    started = begin_text(run, details.now)
    word = run.status.replace("_", " ")
    if run.undo_wanted_at is not None:
        word += f", {run.status_before_undo}"
    state = f" {word} {started}".rstrip()
    if run.started_at is None and run.has_ended:
        state = f" {run.status} before it began"
    elif run.status_before_undo.is_end:
        took = duration(between(run.started_at, run.ended_at) or 0.0)
        state = f" {word} after {took}, started {started}"
    elif run.started_at is not None and run.status is not RunStatus.STARTED:
        state = f" {word}, started {started}"
    parts = [f"run {run.run_id}", run.flow_slug, screen.marked(run.status.mark, state)]
    line = screen.shown("   ".join([*parts, f"input {one_line(app.hide(brief(run.input, 60)))}"]))
    if screen.fits(line):
        return [line]
    given = one_line(app.hide(brief(run.input, _room(app, "input"))))
    lines = [parts[0], "  ".join(parts[1:]), screen.shown(f"input {given}")]
    if not screen.fits(lines[1]):
        lines[1:2] = [run.flow_slug, screen.marked(run.status.mark, state.partition(",")[0])]
    return lines


def _room(app: App, label: str) -> int:
    dots = len(app.out.sign(CUT)) - 1
    return 200 if app.out.width is None else max(app.out.width - len(label) - 3 - dots, 10)


def painted(graph: Graph, screen: Screen) -> str:
    """The picture of a graph in colours, as wide and with the signs that this screen has."""
    with_signs = draw(graph, width=screen.width)
    text = with_signs if screen.unicode else draw(graph, width=screen.width, utf8=False)
    if not screen.colour:
        return text
    pairs = zip(with_signs.splitlines(), text.splitlines(), strict=True)
    return "\n".join(_in_colour(signs, line, screen) for signs, line in pairs)


def _in_colour(signs: str, line: str, screen: Screen) -> str:
    """Paint the states of a line; `signs` is the same line with the signs of Unicode."""
    shown, at = "", 0
    for match in _STATE.finditer(signs):
        shown += line[at : match.start()]
        shown += screen.paint(line[match.start() : match.end()], _MARKS[match[1]].colour)
        at = match.end()
    return shown + line[at:]


def _undo_progress(details: RunDetails) -> str:
    run, undo = details.run, details.undo
    tasks, undone = (sum(getattr(each, name) for each in details.undos.values())
                     for name in ("tasks", "undone"))  # fmt: skip
    if undo is None:
        is_over = run.status is RunStatus.UNDONE
        return "there was nothing to undo" if is_over else "begins when none of its tasks runs"
    took_s = between(run.undo_wanted_at, undo.ended_at) if run.has_ended else None
    within = "" if took_s is None else f" in {duration(took_s)}"
    return f"{undone} of {tasks} undone{within}, by run {short_id(undo.run_id)}"


def print_family(app: App, family: Sequence[FamilyMember], shown: UUID, now: datetime) -> None:
    """The tree, with a mark at the run that is shown; a note if it is larger than what was read."""
    for branch in branches_of(family):
        member = branch.member
        run = str(member.run_id) if app.verbose else short_id(member.run_id)
        state = app.out.marked(member.status.mark, f" {run} {member.flow_slug} {member.status}")
        by = f"  by {member.parent_step}#{member.parent_index}" if member.depth else ""
        here = "  (this run)" if member.run_id == shown and len(family) > 1 else ""
        took_s, time = between(member.started_at, member.ended_at), ""
        if member.started_at is not None:
            time = ago(member.started_at, now) if took_s is None else f"after {duration(took_s)}"
        stem = ""
        if member.depth:
            fork, end, past = app.out.branches
            bars = "".join(f"{past}  " if each else "   " for each in branch.bars)
            stem = f"{bars}{end if branch.is_last else fork} "
        app.print(f" {stem}{' '.join(filter(None, (state, time)))}{by}{here}")
    if len(family) == 1:
        app.note("it has no children, and no run has started it")
    elif len(family) == MAX_FAMILY:
        app.note(f"of its family {MAX_FAMILY} runs are shown")
