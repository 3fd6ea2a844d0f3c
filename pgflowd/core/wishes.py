"""
What a start may ask for besides its input: when the run begins, after which others, when it
expires, labels, a key.

A start without wishes has no row for them and costs nothing. Times from now are counted by the
database's clock. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, TypedDict
from uuid import UUID

from pgflowd.core.ids import run_id_of
from pgflowd.core.text import is_storable
from pgflowd.core.traces import CallerTrace
from pgflowd.core.waiting import Time, as_utc, moment_of, seconds_of
from pgflowd.errors import RunError

MAX_KEY_CHARS = 200
CONFLICTS = ("wait", "existing", "reject", "replace")
AFTER_MODES = ("completed", "ended")


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
    found = CheckedWishes(
        begins_at(wishes.get("at"), wishes.get("delay")),
        expires_at(wishes.get("expires")),
        labels_json(wishes.get("labels")),
        _checked_key(key),
        _checked_singleton(wishes.get("singleton")),
        _checked_conflict(wishes.get("singleton"), wishes.get("on_conflict")),
        _checked_actor(wishes.get("actor")),
        _checked_after(wishes.get("after")),
        _checked_after_mode(
            wishes.get("after") or wishes.get("after_keys"), wishes.get("after_mode")
        ),
        trace,
        _checked_keys(wishes.get("after_keys")),
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


def _checked_conflict(singleton: object, on_conflict: object) -> str:
    if on_conflict is None:
        return "wait"
    if on_conflict not in CONFLICTS:
        words = ", ".join(CONFLICTS)
        raise _bad_wish(f"on_conflict is one of {words}, not {repr(on_conflict)[:60]}")
    if singleton is None:
        raise _bad_wish("on_conflict needs a key that one run at a time has: give `singleton` too")
    return str(on_conflict)


def _checked_actor(actor: object) -> str | None:
    if actor is None:
        return None
    if not isinstance(actor, str) or not is_storable(actor):
        raise _bad_wish(f"an actor is a text, not {repr(actor)[:60]}")
    return actor


def _checked_after(after: object) -> tuple[UUID, ...]:
    if after is None:
        return ()
    if isinstance(after, str | bytes) or not isinstance(after, Sequence):
        raise _bad_wish(f"the runs to wait for are a list of ids, not {repr(after)[:60]}")
    return tuple(map(run_id_of, after))


def _checked_keys(keys: object) -> tuple[str, ...]:
    if keys is None:
        return ()
    if isinstance(keys, str | bytes) or not isinstance(keys, Sequence):
        raise _bad_wish(f"the keys of runs to wait for are a list, not {repr(keys)[:60]}")
    return tuple(key for each in keys if (key := _checked_key(each)) is not None)


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
