"""
Finding: what one look of a doctor has shown, and what to do about it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """State is ok, warning or error; a code only where the registry has one."""

    check: str
    state: str
    text: str
    code: str | None = None
    next: str | None = None
