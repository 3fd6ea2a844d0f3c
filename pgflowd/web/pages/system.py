"""The daemons of all machines, what a look at the database finds, and what codes mean."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pgflowd.core.documents import Hidden, Inline, documentation, shown
from pgflowd.core.documents.daemons import ListedDaemon, is_alone, silence
from pgflowd.core.documents.documentation import ErrorPage, ListedCode
from pgflowd.core.finding import Finding, FindingState, Section
from pgflowd.core.text import nearest
from pgflowd.db.daemons import list_daemons
from pgflowd.db.doctor import DoctorRequest, examine
from pgflowd.errors import TITLES, NotFound, PgflowdError
from pgflowd.host.pages import error_page, error_texts
from pgflowd.web.pages.page import Page, PageRequest


@dataclass(frozen=True)
class ShownDaemons:
    """The daemons that have told of themselves within a day."""

    daemons: Sequence[ListedDaemon]

    def silence(self, daemon: ListedDaemon) -> str:
        """What became of one that is silent."""
        return silence(daemon, is_alone=is_alone(self.daemons))


@dataclass(frozen=True)
class ShownDaemon:
    """One daemon."""

    daemon: Inline[ListedDaemon]
    silence: Hidden[str]


def daemon_list(request: PageRequest) -> ShownDaemons:
    return ShownDaemons(request.read(list_daemons()))


def daemon_page(request: PageRequest) -> ShownDaemon:
    """A daemon by its id."""
    wanted, found = request.path["daemon"], request.read(list_daemons())
    for daemon in found:
        if str(daemon.daemon_id) == wanted:
            return ShownDaemon(daemon, silence(daemon, is_alone=is_alone(found)))
    close = nearest(wanted, [str(each.daemon_id) for each in found])
    remedy = f"did you mean '{close}'?" if close else "rows are deleted after a day of silence"
    raise NotFound(f"there is no daemon {wanted}", next=remedy)


SECTIONS = (Section.DATABASE, Section.CONNECTIONS)


@dataclass(frozen=True)
class ShownFindings:
    """The findings, as `doctor` prints them."""

    findings: Annotated[Sequence[Finding], "what was examined"]

    @property
    @shown
    def ok(self) -> Annotated[bool, "whether there is no error"]:
        return all(each.state != FindingState.ERROR for each in self.findings)


def database_page(request: PageRequest) -> ShownFindings:
    return ShownFindings([*examine(request.conn, DoctorRequest(), SECTIONS)])


MAX_WORDS_CHARS = 200


@dataclass(frozen=True)
class ShownCodes:
    """The codes whose pages have some words, or all."""

    codes: Annotated[list[ListedCode], "the codes that were found"]

    @property
    def groups(self) -> dict[str, list[ListedCode]]:
        """They by what they are about."""
        groups: dict[str, list[ListedCode]] = {}
        for code in self.codes:
            groups.setdefault(code.group, []).append(code)
        return groups


@dataclass(frozen=True)
class Explained:
    """The page of a code."""

    page: Inline[ErrorPage]


def codes(request: PageRequest) -> ShownCodes:
    words = (request.word("words") or "")[:MAX_WORDS_CHARS]
    found = documentation.codes_with(error_texts(), words) if words else TITLES
    return ShownCodes(documentation.listed_codes(found))


def explained(request: PageRequest) -> Explained:
    code = request.path["code"].upper()
    if code not in TITLES:
        near = documentation.nearest_codes(code)
        listed = ", ".join(f"{each} ({TITLES[each]})" for each in near)
        remedy = f"the nearest are {listed}" if near else "the page /explain lists all codes"
        raise PgflowdError(f"there is no code {code[:60]}", code="E507", next=remedy)
    return Explained(error_page(code))


PAGES = (
    Page("/daemons", "daemons.html", daemon_list, "daemons list"),
    Page("/daemons/{daemon}", "daemon.html", daemon_page, "daemons list"),
    Page("/database", "database.html", database_page, f"doctor {' '.join(SECTIONS)}"),
    Page(
        "/explain", "codes.html", codes,
        lambda request: ["explain", *(request.word("words") or "").split()],
        others=frozenset({"words"}), needs_database=False,
    ),
    Page(
        "/explain/{code}", "explain.html", explained,
        lambda request: ["explain", request.path["code"].upper()], needs_database=False,
    ),
)  # fmt: skip
