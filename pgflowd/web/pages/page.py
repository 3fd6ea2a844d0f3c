"""
What a page is: its address, the document that it reads, and how it is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg

from pgflowd.core.settings.values import parse_duration
from pgflowd.core.wishes import NEVER, Moment
from pgflowd.db.run_search import find_run
from pgflowd.errors import PgflowdError

Connection = psycopg.Connection[Any]
WithRows = Callable[[Connection, Any, Collection[str]], tuple[Any, Collection[str]]]
MAX_AGO_S = 36_500 * 86_400.0  # no run is older


@dataclass(frozen=True)
class PageRequest:
    """What a page is asked for; `query` has only names that the page knows."""

    conn: Connection  # None where the database is away, for pages that need none
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)

    def run_id(self) -> UUID:
        """The run of the address."""
        return find_run(self.conn, self.path["run"])

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

    def one_of(self, name: str, known: Sequence[str]) -> str | None:
        """A parameter that is one of some words."""
        text = self.word(name)
        if text is not None and text not in known:
            raise refused(name, text, ", ".join(known))
        return text


def refused(name: str, value: str, expected: str) -> PgflowdError:
    """The error about a parameter that cannot be used."""
    text = f"the parameter '{name}' is '{value[:60]}'"
    return PgflowdError(text, code="E506", next=f"it must be {expected}")


@dataclass(frozen=True)
class Page:
    """A page, and the document below the same path of the API."""

    path: str
    template: str
    read: Callable[[PageRequest], Any]
    command: Callable[[PageRequest], Sequence[str]]  # which prints the same
    parameters: frozenset[str] = frozenset()  # that its address may have
    lists: frozenset[str] = frozenset()  # of these, those that may be given several times
    views: Mapping[str, Page] = field(default_factory=dict)  # by the parameter `view`
    # of a list: its document with rows that tabs show and it has no more, and which these are; rows
    # are told by the ids of their fragments
    with_rows: WithRows | None = None
    needs_database: bool = True  # else it is shown without it, too

    def chosen(self, view: str | None) -> Page:
        """The page itself, or one of its views."""
        if not view:
            return self
        if view not in self.views:
            raise refused("view", view, ", ".join(self.views) or "absent")
        return self.views[view]
