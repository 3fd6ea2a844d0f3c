"""
Defines the kinds of configuration keys, each key with its default, range and description.

Each field in `core.settings.sections` is made by one of the functions below. Reading, checking,
`config show`, `config schema` and `config env` use these keys and keep no lists of their own. The
field of a duration ends in `_s` and that of a size in `_bytes`; the key in the file does not. Pure.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any

from pgflowd.core.settings.forms import ADDRESS, FLOW, LOGGER, NAME, WORD, Form
from pgflowd.core.settings.values import Ref, parse_duration, parse_size

KeyPath = tuple[str, ...]  # ("worker", "poll_min"), ("flows", "send_email", "poll_min")

MAX_WHOLE = 1_000_000  # far above any useful number
MAX_DURATION = "365d"
MAX_SIZE = "1GiB"  # the largest value that PostgreSQL stores


class KeyKind(Enum):
    """The type of a key's value."""

    NAME = "name"
    TEXT = "text"
    PATH = "path"
    ADDRESS = "address"
    SECRET = "secret"
    CHOICE = "choice"
    WHOLE = "whole number"
    SHARE = "share"
    SWITCH = "switch"
    DURATION = "duration"
    SIZE = "size"
    TEXTS = "texts"
    WORDS = "words"
    PATHS = "paths"
    FLOWS = "flows"
    LEVELS = "table of levels"

    @property
    def is_text(self) -> bool:
        """Whether the value may be a reference: env:, file: or cred:."""
        return self in {
            KeyKind.NAME,
            KeyKind.TEXT,
            KeyKind.PATH,
            KeyKind.ADDRESS,
            KeyKind.SECRET,
            KeyKind.CHOICE,
        }

    @property
    def is_list(self) -> bool:
        return self in {KeyKind.TEXTS, KeyKind.WORDS, KeyKind.PATHS, KeyKind.FLOWS}


@dataclass(frozen=True)
class Key:
    """One key of the configuration."""

    kind: KeyKind
    default: Any  # as written in the file
    doc: str
    low: float | None = None
    high: float | None = None
    limits: tuple[str, str] = ("", "")  # low and high in words
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False
    may_be_zero: bool = False  # though `low` is above
    form: Form | None = None  # of a text, or of each text of a list


def name(default: str, doc: str) -> Any:
    key = Key(KeyKind.NAME, default, doc, may_be_empty=not default, form=NAME)
    return _field(key, default)


def text(doc: str, default: str = "", *, form: Form | None = None) -> Any:
    key = Key(KeyKind.TEXT, default, doc, may_be_empty=not default, form=form)
    return _field(key, default)


def path(default: str, doc: str) -> Any:
    return _field(Key(KeyKind.PATH, default, doc, may_be_empty=True), default)


def address(default: str, doc: str) -> Any:
    key = Key(KeyKind.ADDRESS, default, doc, may_be_empty=not default, form=ADDRESS)
    return _field(key, default)


def secret(doc: str, *, form: Form | None = None) -> Any:
    return _field(Key(KeyKind.SECRET, "", doc, may_be_empty=True, form=form), Ref(""))


def choice(default: str, doc: str, *others: str) -> Any:
    return _field(Key(KeyKind.CHOICE, default, doc, choices=(default, *others)), default)


def switch(default: bool, doc: str) -> Any:
    return _field(Key(KeyKind.SWITCH, default, doc), default)


def whole(default: int, doc: str, low: int = 1, high: int = MAX_WHOLE) -> Any:
    limits, is_below = (str(low), str(high)), default < low
    key = Key(KeyKind.WHOLE, default, doc, low, high, limits, may_be_zero=is_below)
    return _field(key, default)


def share(default: float, doc: str) -> Any:
    return _field(Key(KeyKind.SHARE, default, doc, 0, 1, limits=("0", "1")), default)


def duration(default: str, doc: str, *, zero: bool = False, high: str = MAX_DURATION) -> Any:
    low = "0s" if zero else "1ms"
    seconds = (parse_duration(low), parse_duration(high))
    key = Key(KeyKind.DURATION, default, doc, *seconds, limits=(low, high))
    return _field(key, parse_duration(default))


def size(default: str, doc: str, *, low: str = "1B", high: str = MAX_SIZE) -> Any:
    key = Key(KeyKind.SIZE, default, doc, parse_size(low), parse_size(high), limits=(low, high))
    return _field(key, parse_size(default))


def texts(default: tuple[str, ...], doc: str, *, form: Form | None = None) -> Any:
    return _field(Key(KeyKind.TEXTS, list(default), doc, form=form), default)


def words(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.WORDS, list(default), doc, form=WORD), default)


def paths(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.PATHS, list(default), doc), default)


def levels(doc: str, *choices: str) -> Any:
    key = Key(KeyKind.LEVELS, {}, doc, choices=choices, form=LOGGER)
    return _field(key, ())


def flows(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.FLOWS, list(default), doc, form=FLOW), default)


@cache
def keys_of(section: type) -> dict[str, tuple[str, Key]]:
    """Map the names of a section's keys in the file to (name of the field, key)."""
    return {_key_name(each): (each.name, each.metadata["key"]) for each in fields(section)}


def _field(key: Key, default: object) -> Any:
    return field(default=default, metadata={"key": key})


def _key_name(each: Field[Any]) -> str:
    suffix = {KeyKind.DURATION: "_s", KeyKind.SIZE: "_bytes"}.get(each.metadata["key"].kind, "")
    return each.name.removesuffix(suffix)
