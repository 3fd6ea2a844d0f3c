"""Prints what happened: the events of a run, what people did, and dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pgflowd.cli.app import App
from pgflowd.core.definition.option_values import change_text
from pgflowd.core.documents import versioned
from pgflowd.core.documents.history import DeadLetter, PersonAction, RunEvent
from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Mark, Outcome, RunStatus, Status, StepStatus, TaskStatus
from pgflowd.core.text import ago, brief, short_id, task_name

PERSON = Mark("◆", "@", "magenta")
RECEIVED = Mark("✉", "<", "blue")
FREED = Mark("▷", ">", "blue")
_STATUSES: dict[str, type[Status]] = {
    "run": RunStatus, "child": RunStatus, "undo": RunStatus, "step": StepStatus, "task": Outcome
}  # fmt: skip
# in the line, or of no use on a screen
_KNOWN_ELSEWHERE = (
    "action_id",
    "reason",
    "signal_id",
    "session_role",
    "token",
    "error",
    "ended_at",
)
_WORDS = {"status": "it was", "before": "it was", "result": "now"}
_DEFINED = {"compiled": "created", "recompiled": "created anew"}
_MAX_SLUG_WIDTH = 24
_VALUE_WIDTH = 60  # characters of a value in a line


class LogWriter:
    """Prints entries as lines, below the date when that changes; with `--json` an object each."""

    def __init__(self, app: App) -> None:
        self.app = app
        self._date = ""
        self._slug_width = 8
        self._tasks: dict[str | None, int] = {}  # of each step

    def write_event(self, event: RunEvent) -> None:
        if self.app.json:
            self.app.print_json_line(versioned(event.to_json()))
            return
        if "tasks" in event.detail:
            self._tasks[event.step] = event.detail["tasks"]
        self._print(event.at, self._subject(event), *_told(event))

    def write_action(self, action: PersonAction) -> None:
        if self.app.json:
            self.app.print_json_line(versioned(action.to_json()))
            return
        self._print(action.at, action.who, PERSON, f"{action.action}{_object_of(action)}")

    def _print(self, at: datetime, subject: str, mark: Mark, text: str) -> None:
        local, screen = at.astimezone(), self.app.out
        if (date := f"{local:%Y-%m-%d}") != self._date:
            self._date = date
            self.app.print(screen.paint(date, None, bold=True))
        subject = one_line(subject, 200)
        self._slug_width = min(max(self._slug_width, len(subject)), _MAX_SLUG_WIDTH)
        head = f"{local:%H:%M:%S}.{local.microsecond // 1000:03}  {subject:<{self._slug_width}}  "
        is_narrow = screen.width is not None and screen.width < 60
        shown = self.app.hide(one_line(text))
        head += f"{screen.marked(mark)} "
        for line in screen.wrapped(shown, head=head, indent=4 if is_narrow else 26):
            self.app.print(line)

    def _subject(self, event: RunEvent) -> str:
        """The step, with the index of a task where there is more than one."""
        if event.step is None:
            return "run"
        is_one_of_many = event.task is not None and (
            event.task > 0 or self._tasks.get(event.step, 1) > 1
        )
        return f"{event.step}#{event.task}" if is_one_of_many else event.step


def print_dead(app: App, found: Sequence[DeadLetter], now: datetime) -> None:
    rows = [
        (
            task_name(*dead.key),
            dead.flow,
            ago(dead.failed_at, now),
            str(dead.attempts),
            app.hide(one_line(dead.error or dead.outcome or "")),
        )
        for dead in found
    ]
    titles = ("TASK", "FLOW", "FAILED", "ATTEMPTS", "ERROR")
    losing = ("ATTEMPTS", "FLOW", "FAILED", "ERROR")
    app.print_table(titles, rows, right={"ATTEMPTS"}, losing=losing, cutting=True)


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
    """To what it was done, why, and what else is known."""
    where = ""
    if action.run_id is not None and action.task is not None:
        where = f" {task_name(action.run_id, str(action.step), action.task)}"
    elif action.run_id is not None:
        where = f" run {short_id(action.run_id)}{f', step {action.step}' if action.step else ''}"
    step = f"/{action.step}" if action.step else ""
    flow = f" flow {action.flow}{step}" if action.flow and not where else ""
    of_flow = f" of {action.flow}" if action.flow and where else ""
    reason = f": {action.reason}" if action.reason else ""
    return f"{flow}{where}{of_flow}{reason}{_more(action)}"


def _more(action: PersonAction) -> str:
    """What else is known, with options as they were and are."""
    data = dict(action.data or {})
    if action.action == "set_option":
        return f" ({change_text({**data, 'step': None})})"
    changes = [change_text(change) for change in data.pop("options", ())]
    if action.action == "define":
        status = data.pop("status", None)
        changes = [_DEFINED[status]] if status in _DEFINED else changes
    return _listed(data, changes)


def _listed(detail: Mapping[str, Any], before: Sequence[str] = ()) -> str:
    """What else is known, in brackets."""
    texts = {
        name: value if isinstance(value, str) else brief(value, _VALUE_WIDTH)
        for name, value in detail.items()
        if name not in _KNOWN_ELSEWHERE
    }
    shown = [*before, *(f"{_WORDS.get(name, name)} {text}" for name, text in texts.items())]
    return f" ({', '.join(shown)})" if shown else ""
