"""
What a start may ask for besides its input: when the run begins, after which others, when it
expires, labels, a key.

A start without wishes has no row for them and costs nothing. Times from now are counted by the
database's clock.

The id of a child run is made of the task that starts it, the flow and a key, or else the number of
the call. So a handler that begins again starts no second one, and is given the first. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from pgflowd.core.ids import run_id_of
from pgflowd.core.statuses import RunStatus
from pgflowd.core.text import is_storable
from pgflowd.core.traces import CallerTrace
from pgflowd.core.waiting import Time, as_utc, moment_of, seconds_of
from pgflowd.errors import RunError

MAX_KEY_CHARS = 200
CONFLICTS = ("wait", "existing", "reject", "replace")
AFTER_MODES = ("completed", "ended")


class By(TypedDict, total=False):
    """Who does something, and why."""

    reason: str | None
    actor: str | None  # by default the connected role


class Wishes(TypedDict, total=False):
    """The keywords of a start. `at` and `delay` exclude each other."""

    at: datetime  # it begins then
    delay: Time  # it begins after this time
    expires: datetime | Time  # it ends then, wherever it is
    after: Sequence[UUID | str]  # it begins when these runs have ended
    after_keys: Sequence[str]  # likewise, by the keys with which runs of this flow were started
    after_mode: Literal["completed", "ended"]  # "ended": even if one of them did not complete
    labels: Mapping[str, str]  # texts by which runs are found
    singleton: str  # only one run at a time has this key; empty: none, whatever its flow says
    on_conflict: Literal["wait", "existing", "reject", "replace"]  # while another run has the key
    actor: str  # who asks for it


@dataclass(frozen=True)
class Moment:
    """A moment: `at` itself, or `in_s` from now."""

    at: datetime | None = None
    in_s: float | None = None

    def as_utc(self) -> str | None:
        """`at` as a text that any database reads."""
        return None if self.at is None else as_utc(self.at).isoformat()


NEVER = Moment()


@dataclass(frozen=True)
class CheckedWishes:
    """As the database takes them."""

    begins: Moment = NEVER
    expires: Moment = NEVER
    labels: str | None = None  # JSON
    key: str | None = None
    singleton: str | None = None
    on_conflict: str = "wait"
    actor: str | None = None
    after: tuple[UUID, ...] = ()
    after_mode: str = "completed"
    trace: CallerTrace | None = None  # to which the run then belongs
    after_keys: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The wishes of a child, whose id is made of its key; what is not wished is left out."""
        whole = {
            "at": self.begins.as_utc(),
            "delay_s": self.begins.in_s,
            "expires_at": self.expires.as_utc(),
            "expires_s": self.expires.in_s,
            "labels": self.labels and json.loads(self.labels),
            "singleton": self.singleton,
            "on_conflict": self.on_conflict,
            "actor": self.actor,
            "after": list(map(str, self.after)) or None,
            "after_keys": list(self.after_keys) or None,
            "after_mode": self.after_mode,
            "traceparent": self.trace and self.trace.traceparent,
            "tracestate": self.trace and self.trace.tracestate,
        }
        return {name: value for name, value in whole.items() if value is not None}


def changed(
    begins: Moment,
    expires: Moment,
    after: Sequence[UUID | str] | None = None,
    after_mode: str | None = None,
    singleton: str | None = None,
) -> dict[str, Any]:
    """
    What a planned run is to have instead, as the arguments of `verbs.RESCHEDULE`; None leaves it as
    it is. E432 for what cannot be.
    """
    if after_mode is not None:
        _checked_after_mode(after, after_mode)
    key = _checked_singleton(singleton)
    others = None if after is None else _checked_after(after)
    return {
        "start_at": begins, "expires_at": expires, "after": others, "after_mode": after_mode,
        "singleton_key": key,
    }  # fmt: skip


def checked(
    wishes: Wishes, key: str | None = None, trace: CallerTrace | None = None
) -> CheckedWishes | None:
    """Return the wishes of a start, or None if there are none. E430 or E432 for what cannot be."""
    unknown = set(wishes) - Wishes.__annotations__.keys()
    if unknown:
        raise TypeError(f"a start has no option {', '.join(sorted(unknown))}")
    get = wishes.get
    actor, on_conflict, after_keys = get("actor"), get("on_conflict"), get("after_keys")
    if actor is not None and not (isinstance(actor, str) and is_storable(actor)):
        raise _bad_wish(f"an actor is a text, not {repr(actor)[:60]}")
    if on_conflict is not None and on_conflict not in CONFLICTS:
        words = ", ".join(CONFLICTS)
        raise _bad_wish(f"on_conflict is one of {words}, not {repr(on_conflict)[:60]}")
    if on_conflict is not None and get("singleton") is None:
        raise _bad_wish("on_conflict needs a key that one run at a time has: give `singleton` too")
    keys = map(_checked_key, _listed(after_keys, "keys of runs to wait for are a list"))
    found = CheckedWishes(
        begins_at(get("at"), get("delay")),
        expires_at(get("expires")),
        labels_json(get("labels")),
        _checked_key(key),
        _checked_singleton(get("singleton")),
        on_conflict or "wait",
        actor,
        _checked_after(get("after")),
        _checked_after_mode(get("after") or after_keys, get("after_mode")),
        trace,
        tuple(key for key in keys if key is not None),
    )
    return None if found == CheckedWishes() else found


def require_slug(flow_slug: Any) -> None:
    """Raise TypeError for a flow, a job or None instead of a slug."""
    if not isinstance(flow_slug, str):
        flow = getattr(flow_slug, "flow", flow_slug)
        hint = f"; write {flow.slug!r}" if hasattr(flow, "slug") else ""
        raise TypeError(f"a flow is named by its slug, not by {repr(flow_slug)[:80]}{hint}")


def begins_at(at: object, delay: object) -> Moment:
    """When a run begins; with neither at once."""
    if at is not None and delay is not None:
        raise _bad_wish("a run begins at a moment or after a delay, one of the two")
    if delay is not None:
        return Moment(in_s=seconds_of(delay, "the delay of a start"))
    return NEVER if at is None else Moment(moment_of(at, "the time of a start"))


def expires_at(expires: object) -> Moment:
    """When a run expires."""
    if expires is None:
        return NEVER
    if isinstance(expires, datetime):
        return Moment(moment_of(expires, "the time when a run expires"))
    return Moment(in_s=seconds_of(expires, "the time until a run expires"))


def labels_json(labels: object) -> str | None:
    """Labels as JSON; None without any."""
    if labels is None:
        return None
    if not isinstance(labels, Mapping):
        raise _bad_wish(f"labels are a dict, not {repr(labels)[:60]}")
    for name, value in labels.items():
        if not all(isinstance(each, str) and is_storable(each) for each in (name, value)):
            raise _bad_wish(f"labels are texts, not {repr({name: value})[:60]}")
    return json.dumps(dict(labels)) if labels else None


def _checked_singleton(key: Any) -> str | None:
    """A singleton key; an empty text means none, whatever the flow or the run before had."""
    return "" if key == "" else _checked_key(key)


def _checked_key(key: Any) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not is_storable(key):
        raise _bad_wish(f"a key has 1 to {MAX_KEY_CHARS} characters, not {repr(key)[:60]}")
    return key


def _checked_after(after: object) -> tuple[UUID, ...]:
    return tuple(map(run_id_of, _listed(after, "runs to wait for are a list of ids")))


def _listed(given: Any, rule: str) -> Sequence[Any]:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence | None):
        raise _bad_wish(f"the {rule}, not {repr(given)[:60]}")
    return given or ()


def _checked_after_mode(after: object, mode: object) -> str:
    if mode is None:
        return AFTER_MODES[0]
    if mode not in AFTER_MODES:
        raise _bad_wish(f"after_mode is {' or '.join(AFTER_MODES)}, not {repr(mode)[:60]}")
    if not after:
        raise _bad_wish(f"after_mode {mode} needs runs to wait for: give `after` too")
    return str(mode)


def _bad_wish(text: str) -> RunError:
    return RunError(text, code="E432", next="see docs/guides/planned-runs.md")


@dataclass(frozen=True)
class ChildRun:
    """A run for whose end a handler has waited."""

    run_id: str
    status: RunStatus
    output: Any  # by leaf steps; None unless it has completed
    error: str | None


@dataclass(frozen=True)
class ChildStart:
    """A child that is to be started, once."""

    run_id: str
    flow: str
    input: Any
    wishes: CheckedWishes | None

    def in_trace(self, trace: CallerTrace | None) -> ChildStart:
        """The start of a run that belongs to this trace."""
        wishes = self.wishes or CheckedWishes()
        return replace(self, wishes=replace(wishes, trace=trace)) if trace else self

    def as_json(self) -> dict[str, Any]:
        """The start as runners send it."""
        wishes = {} if self.wishes is None else self.wishes.as_json()
        return {"flow": self.flow, "input": self.input, "wishes": wishes}
