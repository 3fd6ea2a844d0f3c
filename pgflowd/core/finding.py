"""
One result of an examination by `pgflowd doctor`, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`state` is ok, warning or error; `code` is from the registry, if it has one for this."""

    check: str
    state: str
    text: str
    code: str | None = None
    next: str | None = None
