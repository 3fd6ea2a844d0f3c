"""
Writes values, times and names in few characters, for lines on a screen.

`brief` shows a JSON value as far as there is room and says how much it left out. `duration` is the
one short form of a duration; the exact one, for config values, is `core.settings.values`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any
from uuid import UUID

CUT = "…"
_WHO = 60  # characters of who did something, beside a role
_MAX_ELEMENTS = 20  # more do not fit on a line
_MAX_DEPTH = 4  # deeper values do not help on one line
_LONG_TEXT = 60  # characters; of a longer text the first 40 are shown, and its size


def brief(value: Any, width: int = 200) -> str:
    """The value as JSON on one line, of at most `width` characters."""
    return cut(json.dumps(_pruned(value, 0), ensure_ascii=False, default=str), width)


def cut(text: str, width: int) -> str:
    """The text, or its beginning and a sign that the rest is cut off."""
    return text if len(text) <= width else text[: max(width - 1, 0)] + CUT


def short_id(run_id: UUID | str) -> str:
    """The last eight digits, which differ most; screens show and commands take them."""
    return str(run_id)[-8:]


def who(actor: str | None, role: str | None) -> str:
    """
    Who says to have done something, and by which role of the server, if that is another name:
    `ada (role app)`. A long name is cut, so that it does not push the role off a line.
    """
    if role is None or role == actor:
        return actor or ""
    return f"{cut(actor or 'somebody', _WHO)} (role {role})"


def task_name(run_id: UUID, step: str, index: int) -> str:
    """What names a task in a text."""
    return f"{short_id(run_id)}/{step}#{index}"


def duration(seconds: float) -> str:
    """Seconds in few characters: `0.8ms`, `340ms`, `2.75s`, `12s`, `2m05s`, `3h20m`, `4d2h`."""
    if seconds <= 0:
        return "0s"
    if seconds < 0.01:
        return f"{seconds * 1000:.2g}ms"
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f}ms"
    if seconds < 9.995:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + "s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600}h"


def ago(moment: datetime, now: datetime) -> str:
    """How long ago: `4s ago`. Clocks differ, so no moment is in the future."""
    return f"{duration(round((now - moment).total_seconds()))} ago"


def between(start: datetime | None, end: datetime | None) -> float | None:
    """Seconds from one to the other, where both are known."""
    return None if start is None or end is None else max((end - start) / timedelta(seconds=1), 0.0)


def size(count: int) -> str:
    """A number of characters or bytes: `812 B`, `1.2 kB`, `15 MB`, `471 GB`."""
    if count < 1000:
        return f"{count} B"
    number, units = count / 1000, ["TB", "GB", "MB"]
    unit = "kB"
    while number >= 1000 and units:
        number, unit = number / 1000, units.pop()
    return f"{number:.1f} {unit}" if number < 10 else f"{number:.0f} {unit}"


def with_article(name: str) -> str:
    """The name of a type as it is spoken: `an int`, `a UUID`, `an ndarray`, `an HTTPError`."""
    is_spelled = name[:2].isupper() or (name[:1] == "n" and name[1:2] == "d")
    begins = name[:1].lower()
    is_vowel = begins in ("aefhilmnorsx" if is_spelled else "aeio")
    return f"{'an' if begins and is_vowel else 'a'} {name}"


def counted(number: int, word: str) -> str:
    """A number and its noun: `1 run`, `3 runs`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def has_words(text: str, words: Iterable[str]) -> bool:
    """Whether the text has all these words, whatever their case, also within longer ones."""
    folded = text.casefold()
    return all(word.casefold() in folded for word in words)


def is_storable(text: str) -> bool:
    """Whether the database can hold it."""
    return "\0" not in text and not any("\ud800" <= each <= "\udfff" for each in text)


def _pruned(value: Any, depth: int) -> Any:
    """The value without the parts for which a line has no room."""
    if isinstance(value, str) and len(value) > _LONG_TEXT:
        return f"{value[:40]}{CUT} {size(len(value))}"
    if isinstance(value, list):
        if depth >= _MAX_DEPTH and value:
            return [CUT]
        kept = [_pruned(element, depth + 1) for element in value[:_MAX_ELEMENTS]]
        more = len(value) - len(kept)
        return [*kept, f"{CUT} {more} more"] if more else kept
    if isinstance(value, dict):
        if depth >= _MAX_DEPTH and value:
            return {CUT: CUT}
        items = list(value.items())[:_MAX_ELEMENTS]
        kept_items = {key: _pruned(element, depth + 1) for key, element in items}
        more = len(value) - len(kept_items)
        return {**kept_items, CUT: f"{more} more"} if more else kept_items
    return value


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
