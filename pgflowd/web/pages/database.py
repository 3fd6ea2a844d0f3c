"""What a look at the database finds: how large it is, and what hinders work in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from pgflowd.core.documents import shown
from pgflowd.core.finding import Finding, FindingState, Section
from pgflowd.db.doctor import DoctorRequest, examine
from pgflowd.web.pages.page import Page, PageRequest

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


PAGES = (
    Page("/database", "database.html", database_page, lambda _: ["pgflowd", "doctor", *SECTIONS]),
)
