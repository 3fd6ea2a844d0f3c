"""
What a page is: its address, the document that it reads, how it is shown, and what is around it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from pgflowd.core.documents.daemons import Daemons
from pgflowd.core.documents.runs import RunWithStates
from pgflowd.core.lookup import refuse_unknown_step
from pgflowd.core.settings.values import parse_duration
from pgflowd.core.wishes import NEVER, Moment
from pgflowd.db.daemons import list_daemons
from pgflowd.db.flows import overview_counts
from pgflowd.db.operations import Operation, get_with_states
from pgflowd.db.performing import run_sync
from pgflowd.db.query import Query, database_time, execute, execute_together
from pgflowd.db.run_details import find_run
from pgflowd.errors import PgflowdError

T = TypeVar("T")
W = TypeVar("W", bound=str)
Connection = psycopg.Connection[Any]
WithRows = Callable[[Connection, Any, Collection[str]], tuple[Any, Collection[str]]]
MAX_AGO_S = 36_500 * 86_400.0  # no run is older


@dataclass(frozen=True)
class PageRequest:
    """What a page is asked for; `query` has only names that the page knows."""

    conn: Connection  # None where the database is away, for pages that need none
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def read(self, query: Query[T]) -> T:
        return execute(self.conn, query)

    def read_all(self, *queries: Query[Any]) -> list[Any]:
        """The results of all, in one round trip."""
        return execute_together(self.conn, queries)

    def perform(self, operation: Operation[T]) -> T:
        return run_sync(self.conn, operation)

    def run_id(self) -> UUID:
        """The run of the address."""
        return find_run(self.conn, self.path["run"])

    def run(self, step: str | None = None) -> RunWithStates:
        """The run of the address, which has this step, or that of the parameter."""
        found = self.perform(get_with_states(self.run_id()))
        refuse_unknown_step(found, step or self.word("step"))
        return found

    def run_of_query(self) -> UUID | None:
        """The run that the parameter `run` names."""
        return None if (run := self.word("run")) is None else find_run(self.conn, run)

    def word(self, name: str) -> str | None:
        """A parameter; None if it is absent or empty, as forms leave it."""
        return self.query.get(name) or None

    def number(self, name: str, default: int, low: int, high: int) -> int:
        """A parameter that is a whole number."""
        if (text := self.word(name)) is None:
            return default
        if not (text.removeprefix("-").isascii() and text.removeprefix("-").isdigit()):
            raise refused(name, text, "a whole number")
        if len(text) > 18 or not low <= int(text) <= high:
            raise refused(name, text, f"from {low} to {high}")
        return int(text)

    def duration_s(self, name: str) -> float | None:
        """A parameter that is a duration, such as `7d`."""
        if (text := self.word(name)) is None:
            return None
        try:
            return parse_duration(text)
        except ValueError:
            raise refused(name, text, "a duration such as 1h30m or 7d") from None

    def moment(self, name: str) -> Moment:
        """A parameter that is a moment, or how long ago: `2026-12-31T08:00Z` or `7d`."""
        if (text := self.word(name)) is None:
            return NEVER
        if "-" in text:
            try:
                at = datetime.fromisoformat(text)
            except (ValueError, OverflowError):
                raise refused(name, text, "a moment such as 2026-12-31T08:00Z, or 7d") from None
            return Moment(at if at.tzinfo else at.replace(tzinfo=UTC))
        return Moment(in_s=-min(self.duration_s(name) or 0.0, MAX_AGO_S))

    def some_of(self, name: str, known: Sequence[str]) -> list[str]:
        """A parameter that is some of these words, with a comma between them."""
        words = [word for word in (self.word(name) or "").split(",") if word]
        for word in words:
            if word not in known:
                raise refused(name, word, ", ".join(known))
        return words

    def one_of(self, name: str, known: Sequence[W]) -> W | None:
        """A parameter that is one of some words."""
        if (text := self.word(name)) is None:
            return None
        for word in known:
            if word == text:
                return word
        raise refused(name, text, ", ".join(known))


def refused(name: str, value: str, expected: str) -> PgflowdError:
    """The error about a parameter that cannot be used."""
    text = f"the parameter '{name}' is '{value[:60]}'"
    return PgflowdError(text, code="E506", next=f"it must be {expected}")


@dataclass(frozen=True, eq=False)
class Page:
    """A page, and the document below the same path of the API."""

    path: str
    template: str
    read: Callable[[PageRequest], Any]
    # which prints the same; a text has words of the path, as `flows show {flow}`
    prints: str | Callable[[PageRequest], Sequence[str]]
    options: Sequence[str] = ()  # parameters of the address that are options of the command, too
    others: frozenset[str] = frozenset()  # the other parameters
    lists: frozenset[str] = frozenset()  # of all these, those that may be given several times
    views: Mapping[str, Page] = field(default_factory=dict)  # by the parameter `view`
    # of a list: its document with rows that tabs show and it has no more, and which these are; rows
    # are told by the ids of their fragments
    with_rows: WithRows | None = None
    needs_database: bool = True  # else it is shown without it, too

    @property
    def parameters(self) -> frozenset[str]:
        """All that its address may have."""
        return self.others.union(self.options)

    def chosen(self, view: str | None) -> Page:
        """The page itself, or one of its views."""
        if not view:
            return self
        if view not in self.views:
            raise refused("view", view, ", ".join(self.views) or "absent")
        return self.views[view]

    def command(self, request: PageRequest) -> list[str]:
        """The command that prints the document that is asked for."""
        if not isinstance(self.prints, str):
            return ["pgflowd", *self.prints(request)]
        path = dict(request.path)
        path["run"] = path.get("run", "")[-8:]
        words = ["pgflowd", *(word.format_map(path) for word in self.prints.split())]
        for name in self.options:
            given = request.word(name) or ""
            values = given.split(",") if name in self.lists else [given]
            words += [word for value in values if value for word in (f"--{name}", value)]
        return words


# What every page has around its content: the time, and what the navigation says.
@dataclass(frozen=True)
class PageFrame:
    """It was read together with the document of the page."""

    now: datetime  # by the database's clock
    problems: Sequence[Mapping[str, Any]] = ()  # with the daemon of each
    counts: Mapping[str, int] = field(default_factory=dict)  # by the path of a page


def read_frame(conn: Connection) -> PageFrame:
    queries: list[Any] = [database_time(), list_daemons(only_problems=True), overview_counts()]
    now, daemons, found = execute_together(conn, queries)
    counts = {
        "/inbox": found.people + found.quarantined, "/stalled": found.stalled, "/dead": found.dead,
        "/daemons": sum(daemon.is_silent for daemon in daemons),
    }  # fmt: skip
    shown = []
    for daemon in daemons:
        problems: Sequence[Mapping[str, Any]] = daemon.problems
        if daemon.is_silent:  # the rest is old
            problems = [{"text": Daemons(daemons).silence(daemon)}]
        for one in problems:
            shown.append({"daemon": daemon, "code": None, "next": None, "flow": None, **one})
    return PageFrame(now, shown, counts)
