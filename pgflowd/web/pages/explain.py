"""What the codes of errors and warnings mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pgflowd.core.documents import Hidden, Inline, Named, shown
from pgflowd.core.documents.error_pages import (
    ErrorPage,
    ListedCode,
    found_in,
    group_of,
    listed_codes,
    nearest_codes,
)
from pgflowd.errors import TITLES, PgflowdError
from pgflowd.host.pages import error_page, error_texts
from pgflowd.web.pages.page import Page, PageRequest

MAX_WORDS_CHARS = 200


@dataclass(frozen=True)
class ShownCodes:
    """The codes whose pages have some words, or all."""

    codes: Hidden[Sequence[str]]

    @property
    @shown
    def found(self) -> Annotated[list[ListedCode], Named("codes"), "the codes that were found"]:
        return listed_codes(self.codes)

    @property
    def groups(self) -> dict[str, list[tuple[str, str]]]:
        """Code and title of each, by what they are about."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for code in self.codes:
            groups.setdefault(group_of(code), []).append((code, TITLES[code]))
        return groups


@dataclass(frozen=True)
class Explained:
    """The page of a code."""

    page: Inline[ErrorPage]


def codes(request: PageRequest) -> ShownCodes:
    words = (request.word("words") or "")[:MAX_WORDS_CHARS]
    return ShownCodes(found_in(error_texts(), words) if words else list(TITLES))


def explained(request: PageRequest) -> Explained:
    code = request.path["code"].upper()
    if code not in TITLES:
        near = nearest_codes(code)
        listed = ", ".join(f"{each} ({TITLES[each]})" for each in near)
        remedy = f"the nearest are {listed}" if near else "the page /explain lists all codes"
        raise PgflowdError(f"there is no code {code[:60]}", code="E507", next=remedy)
    return Explained(error_page(code))


def _codes_command(request: PageRequest) -> list[str]:
    return ["pgflowd", "explain", *(request.word("words") or "").split()]


PAGES = (
    Page(
        "/explain", "codes.html", codes, _codes_command, frozenset({"words"}),
        needs_database=False,
    ),
    Page(
        "/explain/{code}", "explain.html", explained,
        lambda request: ["pgflowd", "explain", request.path["code"].upper()],
        needs_database=False,
    ),
)  # fmt: skip
