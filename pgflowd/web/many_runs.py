"""
Actions on many runs: those that somebody has chosen in a list.

The first request chooses: the answer is a page that says how many runs there are, of which flows,
and asks. The ids stand in that page, so the second request acts on the runs that were counted, and
on no others. It acts for ten seconds at most; the page with the result has a button for the rest.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import parse_qsl
from uuid import UUID

from pgflowd.core.documents import Hidden
from pgflowd.core.documents.runs import ListedRun
from pgflowd.core.verbs import Verb
from pgflowd.db import operations
from pgflowd.db.operations import perform
from pgflowd.db.performing import run_sync
from pgflowd.db.query import execute
from pgflowd.db.run_search import runs_by_id, search_runs
from pgflowd.db.runs import AT_ONCE, change_many
from pgflowd.errors import PgflowdError
from pgflowd.web.actions import MANY_VERBS, ActionRequest, bad_field, given_of
from pgflowd.web.pages.page import PageRequest
from pgflowd.web.pages.runs import filter_of

MOST = 1000  # runs of a choice; a form holds no more ids
ASKED_TWICE = 50  # of more than these the number is typed, for a verb that nothing takes back
_TIME_S = 10.0


@dataclass(frozen=True)
class ChosenRuns:
    """The runs that somebody has chosen, before anything is done."""

    verb: str
    runs: Sequence[ListedRun]
    text: str = ""  # why it asks again

    @property
    def ids(self) -> str:
        return ",".join(str(run.run_id) for run in self.runs)

    @property
    def flows(self) -> list[tuple[str, int]]:
        """Each flow with the number of its runs, the most first."""
        return Counter(run.flow_slug for run in self.runs).most_common()

    @property
    def oldest(self) -> datetime | None:
        return min((run.started_at for run in self.runs if run.started_at), default=None)

    @property
    def is_typed(self) -> bool:
        """Whether somebody has to type the number."""
        return needs_number(self.verb, len(self.runs))


class RefusedRun(NamedTuple):
    """A run that refused a change, and why."""

    run_id: UUID
    code: str
    text: str
    next: str | None


@dataclass(frozen=True)
class ChangedRuns:
    """What became of runs that somebody has chosen."""

    verb: Annotated[str, "what was done: `cancel`, `retry` and others"]
    reason: Hidden[str | None]
    done: Annotated[Sequence[UUID], "the runs of which it was done"]
    already: Annotated[Sequence[UUID], "those that were so before"]
    refused: Annotated[Sequence[RefusedRun], "those that refused, and why"]
    left: Annotated[Sequence[UUID], "those that were not tried"] = ()  # its time was over

    @property
    def left_ids(self) -> str:
        return ",".join(map(str, self.left))


def choose(request: ActionRequest, ids: Sequence[str], text: str = "") -> ChosenRuns:
    """
    The runs of these ids, or those that the filter of a list finds, in the order in which their
    locks are taken.
    """
    _verb(request.path["verb"])
    if request.fields.is_set("all"):
        filter = parse_qsl((request.fields.text("filter") or "").removeprefix("?"))
        wanted = filter_of(PageRequest(request.conn, query=dict(filter)))
        found = list(execute(request.conn, search_runs(wanted, MOST)).runs)
    else:
        found = execute(request.conn, runs_by_id(_checked(ids)))
    if not found:
        raise bad_field("no run is chosen", next="tick some runs of the list")
    return ChosenRuns(request.path["verb"], sorted(found, key=lambda run: run.run_id), text)


def change(request: ActionRequest, ids: Sequence[str]) -> ChangedRuns:
    """Do it to each run, fifty in a transaction."""
    verb, until = _verb(request.path["verb"]), time.monotonic() + _TIME_S
    given = {**given_of(verb, request.fields), "actor": request.actor}
    rest = sorted(set(_checked(ids)))
    done: list[UUID] = []
    already: list[UUID] = []
    refused: list[RefusedRun] = []

    def change_one(run_id: UUID) -> bool:
        """Whether something was done."""
        before = run_sync(request.conn, operations.get(run_id)).status
        if before in verb.already:
            return False
        run_sync(request.conn, perform(verb, run_id, **given))
        return True

    while rest and time.monotonic() < until:
        some, rest = rest[:AT_ONCE], rest[AT_ONCE:]
        for run_id, result in change_many(request.conn, some, change_one):
            if isinstance(result, PgflowdError):
                refused.append(RefusedRun(run_id, result.code, result.text, result.next))
            else:
                (done if result else already).append(run_id)
    return ChangedRuns(request.path["verb"], request.reason, done, already, refused, rest)


def is_confirmed(request: ActionRequest, ids: Sequence[str]) -> bool:
    """Whether somebody is sure; perhaps they have typed how many."""
    if not request.fields.is_set("sure"):
        return False
    is_typed = needs_number(request.path["verb"], len(ids))
    return not is_typed or request.fields.number("count", MOST) == len(ids)


def needs_number(verb: str, runs: int) -> bool:
    """Whether the number of these runs is typed."""
    return _verb(verb).is_danger and runs > ASKED_TWICE


def _verb(path: str) -> Verb[Any]:
    found = {verb.path: verb for verb in MANY_VERBS}
    if path not in found:
        known = f"these can: {', '.join(found)}"
        raise PgflowdError(f"'{path}' cannot be done to many runs", code="E507", next=known)
    return found[path]


def _checked(ids: Sequence[str]) -> list[UUID]:
    if len(ids) > MOST:
        raise bad_field(f"{len(ids)} runs are chosen; {MOST} are the most", next="choose fewer")
    try:
        return [UUID(one) for one in ids]
    except ValueError:
        raise bad_field("what is chosen are not ids of runs") from None
