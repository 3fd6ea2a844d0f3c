"""
What a check of `pgflowd doctor` has found, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pgflowd.core.documents import Words, shown
from pgflowd.core.statuses import Marks, Status


class Section(StrEnum):
    """What can be examined by itself, in the order of `pgflowd doctor`."""

    SCHEMA = "schema"
    DATABASE = "database"
    CONNECTIONS = "connections"
    FLOWS = "flows"
    SYSTEMD = "systemd"


class FindingState(Status):
    """`ok`: as it should be; `warning`: it works, and may be better; `error`: it does not work."""

    OK = "ok", Marks.DONE
    WARNING = "warning", Marks.WARNING
    ERROR = "error", Marks.FAILED


@dataclass(frozen=True)
class Finding:
    """`code` is from the registry of errors, if it has one for this."""

    state: Annotated[FindingState, "how that is"]
    text: str
    code: str | None = None
    next: str | None = None
    # filled in by whoever performs the check, as is the next
    section: Annotated[str, Words(Section), "to which it belongs"] = ""
    check: Annotated[str, "what was examined"] = ""


@dataclass(frozen=True)
class Findings:
    """What a doctor has examined."""

    findings: Annotated[Sequence[Finding], "what was examined"]

    @property
    @shown
    def ok(self) -> Annotated[bool, "whether there is no error"]:
        return all(each.state is not FindingState.ERROR for each in self.findings)


def ok(text: str) -> Finding:
    return Finding(FindingState.OK, text)


def warning(text: str, next: str, code: str | None = None) -> Finding:
    return Finding(FindingState.WARNING, text, code, next)


def error(text: str, next: str | None = None, code: str | None = None) -> Finding:
    return Finding(FindingState.ERROR, text, code, next)
