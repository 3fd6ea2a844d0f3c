"""
One result of an examination by `pgflowd doctor`, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingState(StrEnum):
    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """`code` is from the registry of errors, if it has one for this."""

    check: str
    state: str
    text: str
    code: str | None = None
    next: str | None = None


def ok(check: str, text: str) -> Finding:
    return Finding(check, FindingState.OK, text)


def warning(check: str, text: str, next: str, code: str | None = None) -> Finding:
    return Finding(check, FindingState.WARNING, text, code, next)


def error(check: str, text: str, next: str | None = None, code: str | None = None) -> Finding:
    return Finding(check, FindingState.ERROR, text, code, next)
