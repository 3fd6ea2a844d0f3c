"""
Which runs a list shows, and which tasks: what clients, `runs list` and the dashboard ask for. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypedDict
from uuid import UUID

from pgflowd.core.documents.runs import PageKey
from pgflowd.core.ids import run_id_of
from pgflowd.core.settings.values import needs_fault, sorted_needs
from pgflowd.core.statuses import OPEN_TASK_STATUSES, RunStatus, Status
from pgflowd.core.text import is_storable
from pgflowd.core.typed.codec import encode_value
from pgflowd.core.waiting import Time, moment_of, seconds_of
from pgflowd.core.wishes import MAX_KEY_CHARS, NEVER, Moment, require_slug
from pgflowd.errors import RunError

MAX_LISTED = 1000  # of one page


class RunsWanted(TypedDict, total=False):
    """The keywords of `runs` and `count`: what the runs have in common, by default nothing."""

    flow: str  # of all its versions
    status: str | Sequence[str]  # one of these
    labels: Mapping[str, str]  # all of these
    key: str  # with which a run of this flow was started
    text: str  # in their error, title or labels, or the first or last digits of their id
    input: Any  # contained in theirs, as by PostgreSQL's @>
    since: datetime | Time  # they began after it, or within this time
    until: datetime | Time  # they began before it, or longer ago than this time
    with_undos: bool  # also runs that undo others


@dataclass(frozen=True)
class RunFilter:
    """What runs of a list have in common; by default nothing."""

    flow: str | None = None
    statuses: Sequence[str] = ()
    since: Moment = NEVER  # they began after it, or were asked for
    until: Moment = NEVER
    labels: Mapping[str, str] = field(default_factory=dict)
    text: str = ""  # in their error, title or labels, or the first or last digits of their id
    with_undos: bool = False  # also runs that undo others
    input: str | None = None  # JSON that theirs contains
    key: str | None = None  # with which a run of this flow was started

    @property
    def is_empty(self) -> bool:
        return self == RunFilter(with_undos=self.with_undos)


def run_filter(wanted: RunsWanted) -> RunFilter:
    """Return the filter of these keywords. E434 or E430 for what cannot be."""
    unknown = set(wanted) - RunsWanted.__annotations__.keys()
    if unknown:
        raise TypeError(f"runs are not found by {', '.join(sorted(unknown))}")
    flow, key, text = wanted.get("flow"), wanted.get("key"), wanted.get("text", "")
    if flow is not None:
        require_slug(flow)
    if not isinstance(text, str) or not is_storable(text):
        raise bad_filter(f"what is searched for is a text, not {repr(text)[:60]}")
    labels, value = wanted.get("labels") or {}, wanted.get("input")
    texts = [*labels, *labels.values()] if isinstance(labels, Mapping) else [None]
    if not all(isinstance(each, str) and is_storable(each) for each in texts):
        raise bad_filter(f"labels are a dict of texts, not {repr(labels)[:60]}")
    return RunFilter(
        flow,
        statuses_of(wanted.get("status"), RunStatus),
        _moment(wanted.get("since"), "since"),
        _moment(wanted.get("until"), "until"),
        labels,
        text,
        bool(wanted.get("with_undos")),
        None if value is None else encode_value(value, what="input"),
        checked_key(flow, key),
    )


def open_tasks_wanted(
    run_id: UUID | str | None, flow: str | None, status: object, needs: Sequence[str]
) -> tuple[UUID | None, str | None, tuple[str, ...], tuple[str, ...]]:
    """Check which open tasks are wanted. E434 for what cannot be."""
    if flow is not None:
        require_slug(flow)
        if run_id is not None:
            raise bad_filter("a run and a flow exclude each other: a run has one flow")
    if needs and (fault := needs_fault(needs)):
        raise bad_filter(f"needs {fault}, not {repr(needs)[:60]}")
    wanted = statuses_of(status, OPEN_TASK_STATUSES)
    return None if run_id is None else run_id_of(run_id), flow, wanted, sorted_needs(needs)


def checked_key(flow: str | None, key: str | None) -> str | None:
    """A key, which a run has within its flow. E434 without one, or for no key."""
    if key is None:
        return None
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS or not is_storable(key):
        raise bad_filter(f"a key has 1 to {MAX_KEY_CHARS} characters, not {repr(key)[:60]}")
    if flow is None:
        raise bad_filter("a run has its key within its flow", "give the flow, too")
    return key


def statuses_of(given: object, known: Iterable[Status]) -> tuple[str, ...]:
    """One status or several, of these known ones. E434 for others."""
    found = (given,) if isinstance(given, str) else given
    if found is None:
        return ()
    if isinstance(found, bytes) or not isinstance(found, Sequence | set | frozenset):
        raise bad_filter(f"a status is a text, several are a list, not {repr(given)[:60]}")
    words = [str(each) for each in known]
    for each in found:
        if each not in words:
            raise bad_filter(f"there is no status {repr(each)[:60]}", f"one of {', '.join(words)}")
    return tuple(map(str, found))


def page_key(page: object) -> PageKey | None:
    """Where a page begins: `next` of the page before, or its text. E434 for anything else."""
    if page is None or isinstance(page, PageKey):
        return page
    try:
        return PageKey.read(page if isinstance(page, str) else "")
    except ValueError:
        text = f"{repr(page)[:60]} is not the key of a page"
        raise bad_filter(text, "use `next` of the page before") from None


def checked_limit(limit: object) -> int:
    """How many a page has at most. E434 for no such number."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAX_LISTED:
        raise bad_filter(f"a page has 1 to {MAX_LISTED:,} rows, not {repr(limit)[:60]}")
    return limit


def _moment(time: object, name: str) -> Moment:
    if time is None:
        return NEVER
    if isinstance(time, datetime):
        return Moment(moment_of(time, f"`{name}`"))
    return Moment(in_s=-seconds_of(time, f"`{name}`"))


def bad_filter(text: str, remedy: str = "see docs/guides/start-runs.md") -> RunError:
    return RunError(text, code="E434", next=remedy)
