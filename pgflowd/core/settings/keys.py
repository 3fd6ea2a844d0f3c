"""
Keys: what the fields of the settings' dataclasses know about themselves.

Each field of `core.settings` is made by one of the functions below, and so carries its kind,
its default as the file would say it, its range and a sentence for people. Reading, checking,
`config show`, `config schema` and `config env` all follow from that and keep no lists of
their own. A duration's field ends in `_s` and a size's in `_bytes`; the key in the file does
not. Pure.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from enum import Enum
from functools import cache
from typing import Any

from pgflowd.core.settings.refs import Ref
from pgflowd.core.settings.units import parse_duration, parse_size

MOST_WHOLE = 1_000_000
MOST_DURATION = "365d"
MOST_SIZE = "1GiB"  # PostgreSQL takes no larger value


class KeyKind(Enum):
    """What a key holds."""

    NAME = "name"
    PATH = "path"
    SECRET = "secret"
    CHOICE = "choice"
    WHOLE = "whole number"
    SWITCH = "switch"
    DURATION = "duration"
    SIZE = "size"
    TEXTS = "texts"
    PATHS = "paths"
    FLOWS = "flows"

    @property
    def is_text(self) -> bool:
        """Whether env:, file: and cred: may stand for the value."""
        return self in {KeyKind.NAME, KeyKind.PATH, KeyKind.SECRET, KeyKind.CHOICE}

    @property
    def is_list(self) -> bool:
        return self in {KeyKind.TEXTS, KeyKind.PATHS, KeyKind.FLOWS}


@dataclass(frozen=True)
class Key:
    """One key of the configuration."""

    kind: KeyKind
    default: Any  # as the file would say it
    doc: str
    low: float | None = None
    high: float | None = None
    limits: tuple[str, str] = ("", "")  # low and high in words
    choices: tuple[str, ...] = ()
    may_be_empty: bool = False


def name(default: str, doc: str) -> Any:
    return _field(Key(KeyKind.NAME, default, doc, may_be_empty=not default), default)


def path(default: str, doc: str) -> Any:
    return _field(Key(KeyKind.PATH, default, doc, may_be_empty=True), default)


def secret(default: str, doc: str) -> Any:
    return _field(Key(KeyKind.SECRET, default, doc, may_be_empty=True), Ref(default))


def choice(default: str, doc: str, *others: str) -> Any:
    return _field(Key(KeyKind.CHOICE, default, doc, choices=(default, *others)), default)


def switch(default: bool, doc: str) -> Any:
    return _field(Key(KeyKind.SWITCH, default, doc), default)


def whole(default: int, doc: str, low: int = 1, high: int = MOST_WHOLE) -> Any:
    key = Key(KeyKind.WHOLE, default, doc, low, high, limits=(str(low), str(high)))
    return _field(key, default)


def duration(default: str, doc: str, *, zero: bool = False, high: str = MOST_DURATION) -> Any:
    key = Key(
        KeyKind.DURATION,
        default,
        doc,
        0 if zero else 0.001,
        parse_duration(high),
        limits=("0s" if zero else "1ms", high),
    )
    return _field(key, parse_duration(default))


def size(default: str, doc: str) -> Any:
    key = Key(KeyKind.SIZE, default, doc, 1, parse_size(MOST_SIZE), limits=("1B", MOST_SIZE))
    return _field(key, parse_size(default))


def texts(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.TEXTS, list(default), doc), default)


def paths(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.PATHS, list(default), doc), default)


def flows(default: tuple[str, ...], doc: str) -> Any:
    return _field(Key(KeyKind.FLOWS, list(default), doc), default)


@cache
def keys_of(section: type) -> dict[str, tuple[str, Key]]:
    """Return the keys of a section by their names in the file: the field's name and the key."""
    return {_key_name(each): (each.name, each.metadata["key"]) for each in fields(section)}


def _field(key: Key, default: object) -> Any:
    return field(default=default, metadata={"key": key})


def _key_name(each: Field[Any]) -> str:
    suffix = {KeyKind.DURATION: "_s", KeyKind.SIZE: "_bytes"}.get(each.metadata["key"].kind, "")
    return each.name.removesuffix(suffix)
