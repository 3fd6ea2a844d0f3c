"""
Suggest: "did you mean", the same everywhere.

A name nobody knows is mostly a name mistyped. `did_you_mean` gives the words to put behind a
message, or nothing when no known name is near.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_LONGEST = 100  # characters of a word that are compared, since that costs their square


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word most like this one, case aside, if any is alike at all."""
    by_fold = {name.casefold(): name for name in sorted(known, reverse=True)}
    close = get_close_matches(word[:_LONGEST].casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str | None:
    """`did you mean 'x'?`, or None."""
    name = nearest(word, known)
    return f"did you mean '{name}'?" if name else None
