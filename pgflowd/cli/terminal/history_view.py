"""
Prints what happens and has happened: changes of runs, actions of people, dead letters.

`TimelineWriter` prints the entries of `core.timeline` while a run goes on, `LogWriter` what the
database has of it afterwards: as lines, or with `--json` as one object per line. Outputs are cut to
the room that a line has; errors are wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.list_view import wait_lines
from pgflowd.cli.terminal.screen import BAR, CUT, columns, text_width
from pgflowd.cli.terminal.texts import call_lines, error_lines, folded_lines, safe_lines
from pgflowd.core.definition.options import change_text
from pgflowd.core.documents.run_tasks import PersonAction, RunEvent
from pgflowd.core.documents.runs import TimelineEntry
from pgflowd.core.failure import last_calls
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Mark, Outcome, RunStatus, Status, StepStatus, TaskStatus
from pgflowd.core.text import brief, counted, duration, short_id, task_name
from pgflowd.core.timeline import PROGRESS, RUN_UNDOING, WAITING

_STARTED, _RUN_STARTED = f"step:{StepStatus.STARTED}", f"run:{RunStatus.STARTED}"
# their error may be that of the last attempt, which is told before
_WITH_LAST_ERROR = (f"step:{StepStatus.FAILED}", f"undo:{RunStatus.UNDO_FAILED}")
_LEVELS = {"warning": "yellow", "error": "red"}
_WITHOUT_OUTPUT = (f":{StepStatus.STARTED}", f":{RunStatus.UNDONE}", f":{RunStatus.UNDO_FAILED}")
_MIN_TEXT_WIDTH = 24  # of a handler's line; with fewer columns it goes below its step
_MAX_SLUG_WIDTH = 24  # of the column; a longer slug moves only its own line
_OUTPUT_LENGTH = 100  # where there is no terminal
_PROGRESS_EVERY_S, _PROGRESS_EVERY_SHARE = 10.0, 0.1  # a line for a task, or as much more done
PERSON = Mark("◆", "@", "magenta")
RECEIVED = Mark("✉", "<", "blue")
FREED = Mark("▷", ">", "blue")
_STATUSES: dict[str, type[Status]] = {
    "run": RunStatus, "child": RunStatus, "undo": RunStatus, "step": StepStatus, "task": Outcome
}  # fmt: skip
# in the line, or of no use on a screen
_KNOWN_ELSEWHERE = {
    "action_id", "reason", "signal_id", "session_role", "token", "error", "ended_at",
}  # fmt: skip
_WORDS = {"status": "it was", "before": "it was", "result": "now"}
_DEFINED = {"compiled": "created", "recompiled": "created anew"}
_VALUE_WIDTH = 60  # characters of a value in a line


class TimelineWriter:
    """Prints entries as they come; with `many` runs each line names its run."""

    def __init__(self, app: App, *, many: bool = False) -> None:
        self.app, self.many = app, many
        self._slug_width = 10
        self._last: TimelineEntry | None = None
        self._shown_calls: set[tuple[Any, ...]] = set()
        self._progress: dict[tuple[Any, ...], TimelineEntry] = {}  # of each attempt, as shown last

    def write(self, entry: TimelineEntry) -> None:
        if self.app.json:
            self.app.print_json_line(entry)
        elif entry.event in (_RUN_STARTED, RUN_UNDOING):
            is_undone = entry.event == RUN_UNDOING
            text = f"undoing: {counted(entry.tasks or 0, 'task')}" if is_undone else "started"
            self._print(f"run {short_id(entry.run_id)}  {entry.flow}  {text}")
        elif entry.event == OUTPUT:
            self._write_output(entry)
            return
        elif entry.event == PROGRESS:
            if self.app.verbose or self._is_worth_a_line(entry):
                full, empty = map(self.app.out.sign, BAR)
                text = entry.progress.shown(full, empty) if entry.progress else ""
                self._print(f"{self._head(entry)}{one_line(text)}")
            return
        elif entry.is_end:
            status = _status_of(entry)
            word = "in" if status in (RunStatus.COMPLETED, RunStatus.UNDONE) else "after"
            text = f" {status.replace('_', ' ')} {word} {duration(entry.took_s or 0.0)}"
            line = f"run {short_id(entry.run_id)}  {self.app.out.marked(status.mark, text)}"
            if entry.error:  # whose other lines the step had
                self._print_error(line, entry.error.partition("\n")[0])
            else:
                self._print_fitting(line, entry)
        elif self.app.verbose or not (entry.event == _STARTED or self._is_repeated(entry)):
            self._write_step(entry)
        self._last = entry

    def _is_repeated(self, entry: TimelineEntry) -> bool:
        """Whether a step fails with its last attempt, whose error is on the line before."""
        last = self._last
        return (
            entry.event in _WITH_LAST_ERROR
            and last is not None
            and last.event.startswith("task:")
            and (last.run_id, last.step, last.error) == (entry.run_id, entry.step, entry.error)
        )

    def _write_step(self, entry: TimelineEntry) -> None:
        status, took = _status_of(entry), entry.took_s
        text = "" if took is None else f" {duration(took)}"
        if entry.event.startswith("undo:"):
            text = f" {status.replace('_', ' ')}"
        line = f"{self._head(entry)}{self.app.out.marked(status.mark, text)}"
        if entry.event == WAITING:
            text = entry.text or ""
            head = f"{line}   "
            self._print(*wait_lines(self.app.out, head, text, entry.ends_by, self._indent))
        elif entry.error or entry.event.startswith("task:"):
            self._print_error(line, _error_of(entry))
            # where it failed in the user's code; if it did so before, only the last place
            calls = last_calls(entry.traceback, entry.error or "")
            key = (entry.flow, entry.step, *calls)
            if key in self._shown_calls:
                calls = [call._replace(code=None) for call in calls[-1:]]
            self._shown_calls.add(key)
            self._print(*call_lines(self.app, calls, self._indent))
        else:
            self._print_fitting(line, entry)

    def _write_output(self, entry: TimelineEntry) -> None:
        """A line that a handler printed or logged, below its step."""
        screen, head = self.app.out, self._head(entry)
        level = entry.level if entry.level in _LEVELS else None
        text = f"{level}: {entry.text}" if level else entry.text or ""
        bar = screen.paint("│" if screen.unicode else "|", _LEVELS.get(level or ""))
        room = None if screen.width is None else max(screen.width - len(head) - 2, 1)
        if room is not None and room < max(map(text_width, safe_lines(self.app, text))):
            if room < _MIN_TEXT_WIDTH:
                self._print(head)
                head = "    "
            room = max((screen.width or 0) - len(head) - 2, _MIN_TEXT_WIDTH)
        for line in folded_lines(self.app, text, width=room):
            self._print(f"{head}{bar} {line}")
            head = " " * len(head)

    def _is_worth_a_line(self, entry: TimelineEntry) -> bool:
        """Whether a task has not told of its progress for a while, or is much further."""
        attempt = (entry.run_id, entry.step, entry.task, entry.attempt)
        last = self._progress.get(attempt)
        if last is not None and entry.progress and last.progress:
            share, before = entry.progress.share or 0.0, last.progress.share or 0.0
            passed_s = (entry.at - last.at).total_seconds()
            is_further = abs(share - before) >= _PROGRESS_EVERY_SHARE or share == 1.0 > before
            if passed_s < _PROGRESS_EVERY_S and not is_further:
                return False
        self._progress[attempt] = entry
        return True

    def _head(self, entry: TimelineEntry) -> str:
        """The time and the step, with the index of a map's task."""
        slug = entry.step or ""
        if entry.task is not None and (entry.task or (entry.tasks or 1) > 1):
            slug += f"#{entry.task}"
        self._slug_width = min(max(self._slug_width, len(slug)), _MAX_SLUG_WIDTH)
        run = f"{short_id(entry.run_id)} " if self.many else ""
        return f"{run}{duration(entry.since_start_s):>7}  {slug:<{self._slug_width}}  "

    def _print_fitting(self, line: str, entry: TimelineEntry) -> None:
        """A line with as much of the output as there is room for."""
        screen = self.app.out
        line += f"   {entry.tasks} tasks" if (entry.tasks or 0) > 1 else ""
        room = _OUTPUT_LENGTH if screen.width is None else screen.width - columns(line) - 3
        room -= len(screen.sign(CUT)) - 1
        has_output = room >= 8 and not entry.event.endswith(_WITHOUT_OUTPUT)
        gap = "  " if (entry.tasks or 0) > 1 else "   "
        self._print(f"{line}{gap}{one_line(brief(entry.output, room))}" if has_output else line)

    def _print_error(self, head: str, text: str) -> None:
        """A line with the whole text; more lines where it is too long, or has several."""
        screen, (first, *others) = self.app.out, error_lines(self.app, text)
        lines = screen.wrapped(first, head=f"{head}   " if first else head, indent=self._indent)
        for other in others:
            lines += screen.wrapped(other, head=" " * self._indent, indent=self._indent)
        self._print(*lines)

    @property
    def _indent(self) -> int:
        """Of the lines below that of an entry."""
        return 4 if self.app.out.is_narrow else 11

    def _print(self, *lines: str) -> None:
        self.app.print_lines(self.app.out.shown(self.app.hide(line)).rstrip() for line in lines)


def _status_of(entry: TimelineEntry) -> Status:
    kind, _, word = entry.event.partition(":")
    return TaskStatus.WAITING if entry.event == WAITING else _STATUSES[kind](word)


def _error_of(entry: TimelineEntry) -> str:
    """The error; of an attempt which one it was, and when the next begins."""
    if entry.attempt is None:
        return entry.error or ""
    text, next_try = entry.error or _status_of(entry).replace("_", " "), ""
    if entry.next_at is not None:
        wait_s = round((entry.next_at - entry.at).total_seconds())
        next_try = f"; next in {duration(wait_s)}" if wait_s > 0 else "; next at once"
    return f"attempt {entry.attempt} of {entry.max_attempts}: {text}{next_try}"


class LogWriter:
    """Prints entries as lines, below the date when that changes; with `--json` an object each."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._date = ""
        self._slug_width = 8
        self._tasks: dict[str | None, int] = {}  # of each step

    def write(self, entry: RunEvent | PersonAction) -> None:
        if self.app.json:
            self.app.print_json_line(entry)
            return
        if isinstance(entry, PersonAction):
            subject, mark, text = entry.who, PERSON, f"{entry.action}{_object_of(entry)}"
        else:
            if "tasks" in entry.detail:
                self._tasks[entry.step] = entry.detail["tasks"]
            subject = entry.step or "run"  # with the index of a task where there is more than one
            if entry.step and entry.task is not None:
                is_one_of_many = entry.task or self._tasks.get(entry.step, 1) > 1
                subject += f"#{entry.task}" if is_one_of_many else ""
            mark, text = _told(entry)
        local, screen = entry.at.astimezone(), self.app.out
        if (date := f"{local:%Y-%m-%d}") != self._date:
            self._date = date
            self.app.print(screen.paint(date, None, bold=True))
        subject = one_line(subject, 200)
        self._slug_width = min(max(self._slug_width, len(subject)), _MAX_SLUG_WIDTH)
        head = f"{local:%H:%M:%S}.{local.microsecond // 1000:03}  {subject:<{self._slug_width}}  "
        shown = self.app.hide(one_line(text))
        head += f"{screen.marked(mark)} "
        indent = 4 if screen.is_narrow else 26
        self.app.print_lines(screen.wrapped(shown, head=head, indent=indent))


def _told(event: RunEvent) -> tuple[Mark, str]:
    """What happened, in a line."""
    detail, by = event.detail, f" by {event.who}" if event.who else ""
    if event.kind == "action":
        reason = f": {detail['reason']}" if "reason" in detail else ""
        return PERSON, f"{event.word}{by}{reason}{_listed(detail)}"
    if event.kind == "signal":
        sender = f", sent by {event.who}" if event.who else ""
        return RECEIVED, f"got signal {detail.get('name')}{sender}"
    if event.event == "task:waiting":
        return TaskStatus.WAITING.mark, f"waits{_listed(detail)}"
    if event.event == "task:freed":
        how = str(detail.get("how", "")).replace("got", "the signal came")
        return FREED, f"waits no longer: {detail.get('name')}, {how}{by}"
    if event.event == "run:planned":
        return RunStatus.SCHEDULED.mark, f"planned{by}{_listed(detail)}"
    mark = _STATUSES[event.kind](event.word).mark
    if event.kind in ("child", "undo"):
        run = f"{event.kind} run {short_id(str(detail.get('run_id')))} of {detail.get('flow')}"
        return mark, f"{run} {event.word}{by}"
    word = event.word.replace("_", " ")
    if "attempt" in detail:
        word = f"attempt {detail['attempt']} {word}"
    why = detail.get("error") or detail.get("reason") or detail.get("skip_reason")
    more = f", {detail['tasks']} tasks" if detail.get("tasks", 1) != 1 else ""
    last = ", for good" if detail.get("final") and "attempt" in detail else ""
    return mark, f"{word}{more}{last}{by}{f': {why}' if why else ''}"


def _object_of(action: PersonAction) -> str:
    """To what it was done, why, and what else is known, with options as they were and are."""
    step, flow = action.step, f" flow {action.flow}" if action.flow else ""
    if action.run_id is None:
        where = f"{flow}/{step}" if flow and step else flow
    else:
        where = f" run {short_id(action.run_id)}{f', step {step}' if step else ''}"
        if action.task is not None:
            where = f" {task_name(action.run_id, str(step), action.task)}"
        where += f" of {action.flow}" if action.flow else ""
    where += f": {action.reason}" if action.reason else ""
    data = dict(action.data or {})
    if action.action == "set_option":
        return f"{where} ({change_text({**data, 'step': None})})"
    changes = [change_text(change) for change in data.pop("options", ())]
    if action.action == "define":
        status = data.pop("status", None)
        changes = [_DEFINED[status]] if status in _DEFINED else changes
    return f"{where}{_listed(data, changes)}"


def _listed(detail: Mapping[str, Any], before: Sequence[str] = ()) -> str:
    """What else is known, in brackets."""
    texts = {
        name: value if isinstance(value, str) else brief(value, _VALUE_WIDTH)
        for name, value in detail.items()
        if name not in _KNOWN_ELSEWHERE
    }
    shown = [*before, *(f"{_WORDS.get(name, name)} {text}" for name, text in texts.items())]
    return f" ({', '.join(shown)})" if shown else ""
