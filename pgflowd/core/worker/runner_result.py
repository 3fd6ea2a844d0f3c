"""
What a runner sends at the end of its task, made safe to pass on.

A runner's own frames are sound; but a handler shares its process and may write anything into the
socket. So nothing from there reaches a report unless it has the right type, can be stored, and is
no longer than a runner would send.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeGuard

from pgflowd.core.completion import MAX_CHANGES, MAX_ERROR_CHARS
from pgflowd.core.definition.options import MAX_INT
from pgflowd.core.failure import (
    AT_MOST_S,
    MAX_DELAY_S,
    MAX_MESSAGE_CHARS,
    MAX_TRACEBACK_CHARS,
    MAX_TYPE_CHARS,
    MIN_UNSPENT_S,
    clean,
)
from pgflowd.core.ids import is_run_id
from pgflowd.core.settings.values import needs_fault, sorted_needs
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus
from pgflowd.core.undo import PARTS
from pgflowd.core.waiting import (
    MAX_CHECKPOINT_CHARS,
    MAX_RUNS,
    MAX_WAIT_S,
    RESERVED_PREFIXES,
    Wait,
    WaitKind,
    name_fault,
)
from pgflowd.core.worker.events import (
    NOTHING_LEFT,
    LeftBehind,
    Recorded,
    ReportAnswer,
    RunChange,
    Verdict,
)
from pgflowd.core.worker.state import FetchRequest, HandlerRequest
from pgflowd.core.worker.task import Task, TaskReport

# What a handler asks its worker for, made safe to pass on.
#
# As with results (`core.worker.runner_result`), whatever a handler writes into the socket may
# arrive here. A request counts only if each of its fields is as a runner would send it.
_KINDS = {each.value: each for each in HandlerRequest}
_OF_CHECKPOINTS = (HandlerRequest.CHECKPOINTS, HandlerRequest.SAVE, HandlerRequest.DROP)
_OF_RUNS = (HandlerRequest.START, HandlerRequest.RUNS)


def request_of(runner_id: int, head: Mapping[str, Any], body: bytes) -> FetchRequest | None:
    """The request, or None if no runner would send it."""
    what, token, step = head.get("what"), head.get("token"), head.get("step", "")
    kind = _KINDS.get(what) if isinstance(what, str) else None
    if kind is None or not is_token(token):
        return None
    if kind in _OF_RUNS:
        runs, is_start = head.get("runs"), kind is HandlerRequest.START
        if not are_run_ids(runs, 1 if is_start else MAX_RUNS):
            return None
        is_sound = _is_text(body) if is_start else not body
        found = FetchRequest(runner_id, token, kind, data=body, runs=tuple(runs))
        return found if is_sound else None
    if kind is HandlerRequest.ORIGINAL:
        parts: Any = head.get("parts")
        is_list = isinstance(parts, list) and len(parts) <= len(PARTS)
        if body or not is_list or not all(part in PARTS for part in parts):
            return None
        return FetchRequest(runner_id, token, kind, parts=tuple(parts))
    if kind not in _OF_CHECKPOINTS:
        is_sound = not body and (step == "" or not name_fault(step))
        return FetchRequest(runner_id, token, kind, step) if is_sound else None
    name, version = head.get("name", ""), head.get("version", 1)
    if kind is HandlerRequest.CHECKPOINTS:
        is_sound = not body and (name == "" or not name_fault(name, MAX_CHECKPOINT_CHARS))
        return FetchRequest(runner_id, token, kind, "", name) if is_sound else None
    if name_fault(name) or name.startswith(RESERVED_PREFIXES):
        return None
    if not is_token(version) or not 1 <= version <= MAX_INT:
        return None
    if not (_is_text(body) if kind is HandlerRequest.SAVE else not body):
        return None
    return FetchRequest(runner_id, token, kind, "", name, version, body)


def are_run_ids(value: Any, most: int) -> TypeGuard[list[str]]:
    """Whether it is a list of ids of runs: one at least, and no more than so many."""
    return isinstance(value, list) and 0 < len(value) <= most and all(map(is_run_id, value))


def is_token(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(body: bytes) -> bool:
    """Whether it can be JSON; the database parses it."""
    try:
        return bool(body) and "\0" not in body.decode()
    except UnicodeDecodeError:
        return False


_OUTCOMES = {
    each.value: each
    for each in (Outcome.COMPLETED, Outcome.FAILED, Outcome.SUSPENDED, Outcome.RELEASED)
}
MAX_WHY_CHARS = 1000  # of E425, with the name of a checkpoint, or of a note
MAX_SLUG_CHARS = 128
MAX_NAMES = 20  # of what a task left behind
_TEXTS = {
    "error_type": MAX_TYPE_CHARS,
    "error_message": MAX_MESSAGE_CHARS,
    "traceback": MAX_TRACEBACK_CHARS,
}
_OF_WAIT = {"kind", "name", "checkpoint", "in_s", "until", "why", "needs", "runs"}
_RECORDED = {each.value: each for each in (Verdict.COMPLETED, Verdict.REPEATED)}
_RECORDED_AS = [(Outcome.COMPLETED, verdict) for verdict in _RECORDED]
_RUN_ENDS = {each.value: each for each in (RunStatus.COMPLETED, RunStatus.FAILED)}
_CHANGES = {each.value for kind in (RunStatus, StepStatus) for each in kind}
_NUMBERS = {"delay_s": MAX_DELAY_S, "at_most_s": MAX_DELAY_S, "cpu_s": 1e9, "peak_kb": 1e15}


def report_of(task: Task, head: Mapping[str, Any], body: bytes) -> TaskReport:
    """The report of a sound result, with those fields that are what they should be."""
    outcome = _OUTCOMES[head["outcome"]]
    output = body if outcome is Outcome.COMPLETED else None
    fields: dict[str, Any] = {}
    if outcome is not Outcome.COMPLETED:
        for name, longest in _TEXTS.items():
            if isinstance(head.get(name), str):
                fields[name] = clean(head[name], longest)
    for name, most in _NUMBERS.items():
        if name == "at_most_s" and outcome is not Outcome.RELEASED:
            continue
        if name in head and (value := _number(head[name], most)) is not None:
            fields[name] = int(value) if name == "peak_kb" else value
    if outcome is Outcome.RELEASED:  # nothing begins again at once, nor for ever
        fields["delay_s"] = max(fields.get("delay_s", 0.0), MIN_UNSPENT_S)
        fields.setdefault("at_most_s", AT_MOST_S)
    if outcome is Outcome.SUSPENDED:
        fields["wait"] = wait_of(head["wait"])
    return TaskReport(task, outcome, output, retry=head.get("retry") is not False, **fields)


def wait_of(given: Any) -> Wait | None:
    """What a suspended task waits for; None unless all of it is what a runner would send."""
    if not isinstance(given, dict) or not given.keys() <= _OF_WAIT:
        return None
    kind, in_s, until = given.get("kind"), given.get("in_s"), given.get("until")
    name, checkpoint, why = given.get("name"), given.get("checkpoint"), given.get("why")
    needs, runs = given.get("needs"), given.get("runs")
    moment = None if until is None else _moment(until)
    faults = [
        in_s is not None and (until is not None or _number(in_s, MAX_WAIT_S) is None),
        until is not None and moment is None,
        checkpoint is not None and name_fault(checkpoint, MAX_CHECKPOINT_CHARS),
        why is not None and not isinstance(why, str),
    ]
    if kind == WaitKind.SLEEP:
        faults += [name is not None, in_s is None and until is None]
    elif kind == WaitKind.NEED:
        faults += [needs_fault(needs), not given.keys() <= {"kind", "needs", "why"}]
    elif kind == WaitKind.RUNS:
        faults += [name is not None, not are_run_ids(runs, MAX_RUNS), checkpoint is None]
    else:
        faults += [kind != WaitKind.SIGNAL, name_fault(name), checkpoint is None]
    faults += [needs is not None and kind != WaitKind.NEED]
    faults += [runs is not None and kind != WaitKind.RUNS]
    if any(faults):
        return None
    in_s = None if in_s is None else float(in_s)
    why = why and clean(why, MAX_WHY_CHARS)
    needs, runs = needs and sorted_needs(needs), runs and tuple(runs)
    return Wait(WaitKind(str(kind)), name, checkpoint, in_s, moment, why, needs, runs)


def _moment(text: Any) -> datetime | None:
    """The moment of an ISO text with a time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return moment if moment.utcoffset() is not None else None


def recorded_of(task: Task, head: Mapping[str, Any]) -> Recorded | None:
    """What the database made of a sound result, if its runner has recorded it by itself."""
    if not head.get("recorded"):
        return None
    status, given = head.get("run_status"), head.get("changes")
    run_status = _RUN_ENDS.get(status) if isinstance(status, str) else None
    answer = ReportAnswer(_RECORDED[head["verdict"]], run_status=run_status)
    rows = given[:MAX_CHANGES] if isinstance(given, list) else []
    changes = [_change(task.run_id, *row) for row in rows if _is_change(row)]
    return Recorded(answer, tuple(changes))


def _is_change(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != 4:
        return False
    step, status, _, error = row
    return (
        (step is None or isinstance(step, str))
        and isinstance(status, str)
        and status in _CHANGES
        and (error is None or isinstance(error, str))
    )


def _change(run_id: str, step: str | None, status: str, took_s: Any, error: Any) -> RunChange:
    kind = RunStatus if step is None else StepStatus
    step = step and clean(step, MAX_SLUG_CHARS)
    error = error and clean(error, MAX_ERROR_CHARS)
    return RunChange(run_id, step, kind(status), _number(took_s, 1e9), error)


def _number(value: Any, most: float) -> float | None:
    if type(value) is not float and type(value) is not int:  # a bool is neither
        return None
    return float(value) if 0 <= value <= most else None  # NaN is not between them


def left_behind(head: Mapping[str, Any]) -> LeftBehind:
    """What the task left behind in its process."""
    left = head.get("left")
    if not left or not isinstance(left, dict):
        return NOTHING_LEFT
    given = [left.get(name) for name in ("children", "reset", "tasks")]
    lists = [each[:MAX_NAMES] if isinstance(each, list) else () for each in given]
    return LeftBehind(*(tuple(map(str, each)) for each in lists))


def fault_of(head: Mapping[str, Any], body: bytes) -> str | None:
    """What is wrong with a result, if anything."""
    outcome = head.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        return f"an unknown outcome: {str(outcome)[:60]}"
    if head.get("recorded") and (outcome, head.get("verdict")) not in _RECORDED_AS:
        return f"a recorded outcome {outcome} with verdict {str(head.get('verdict'))[:60]}"
    if outcome == Outcome.COMPLETED:
        try:
            text = body.decode()
        except UnicodeDecodeError as error:
            return f"an output that is not UTF-8: {error}"
        if not text or "\0" in text:
            return "an output that is not JSON"
    if outcome == Outcome.SUSPENDED and wait_of(head.get("wait")) is None:
        return f"an unknown wait: {str(head.get('wait'))[:200]}"
    return None
