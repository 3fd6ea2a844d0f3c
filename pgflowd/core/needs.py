"""
Needs and caps: what a step needs of a worker, and what a worker has, as words such as "gpu".

A worker may begin a task if its caps hold all that the task needs. In the database several needs
are one text, sorted, with commas between.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

MAX_NEEDS = 32
RULE = "1 to 64 printable ASCII characters, without blanks and commas"
_WORD = re.compile(r"[!-+\x2d-~]{1,64}")


def is_word(value: object) -> bool:
    """Whether this may be a need or a cap."""
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


def needs_fault(needs: object) -> str | None:
    """What is wrong with the needs of a step, or of a task that is handed on."""
    if isinstance(needs, str) or not isinstance(needs, list | tuple | set | frozenset):
        return 'must be a list, such as ["gpu"]'
    if not 1 <= len(needs) <= MAX_NEEDS:
        return f"must have 1 to {MAX_NEEDS} words"
    if not all(map(is_word, needs)):
        return f"must have words of {RULE}"
    return None


def sorted_needs(needs: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(needs)))


def joined(needs: Iterable[str]) -> str:
    """The needs as the database has them."""
    return ",".join(sorted_needs(needs))


def in_words(name: str) -> str:
    """The database's text of needs, for people."""
    return f"needs {name.replace(',', ', ')}"
