"""
Suggests the known name that a mistyped one probably means, in the same words everywhere.

`did_you_mean` returns the end of an error message, or None when no known name is alike.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MAX_CHARS = 100  # characters that are compared, since the time grows with their square


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one, regardless of case, if any is alike."""
    by_fold = {name.casefold(): name for name in sorted(known, reverse=True)}
    close = get_close_matches(word[:_MAX_CHARS].casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?`, or None."""
    name = nearest(word, known)
    return f"did you mean '{name}'?" if name else None
