"""
What a handler asks its worker for, made safe to pass on.

As with results (`core.worker.runner_result`), whatever a handler writes into the socket may arrive
here. A request counts only if each of its fields is as a runner would send it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from pgflowd.core.child_runs import MAX_RUNS
from pgflowd.core.definition.options import MAX_INT
from pgflowd.core.ids import is_run_id
from pgflowd.core.undo import PARTS
from pgflowd.core.waiting import MAX_CHECKPOINT_CHARS, RESERVED_PREFIXES, name_fault
from pgflowd.core.worker.state import FetchRequest, HandlerRequest

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
        parts = head.get("parts")
        if body or not _are_parts(parts):
            return None
        return FetchRequest(runner_id, token, kind, parts=tuple(parts))
    if kind not in _OF_CHECKPOINTS:
        is_sound = not body and (step == "" or not name_fault(step))
        return FetchRequest(runner_id, token, kind, step) if is_sound else None
    name, version = head.get("name", ""), head.get("version", 1)
    if kind is HandlerRequest.CHECKPOINTS:
        is_sound = not body and (name == "" or not name_fault(name, MAX_CHECKPOINT_CHARS))
        return FetchRequest(runner_id, token, kind, "", name) if is_sound else None
    if name_fault(name) or name.startswith(RESERVED_PREFIXES) or not _is_version(version):
        return None
    if not (_is_text(body) if kind is HandlerRequest.SAVE else not body):
        return None
    return FetchRequest(runner_id, token, kind, "", name, version, body)


def are_run_ids(value: Any, most: int) -> TypeGuard[list[str]]:
    """Whether it is a list of ids of runs: one at least, and no more than so many."""
    return isinstance(value, list) and 0 < len(value) <= most and all(map(is_run_id, value))


def _are_parts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and len(value) <= len(PARTS) and all(p in PARTS for p in value)


def is_token(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_version(value: Any) -> bool:
    return is_token(value) and 1 <= value <= MAX_INT


def _is_text(body: bytes) -> bool:
    """Whether it can be JSON; the database parses it."""
    try:
        return bool(body) and "\0" not in body.decode()
    except UnicodeDecodeError:
        return False
