"""
The kinds of keys of the configuration: how a value of each is read, checked, written, described.

Each field in `core.settings.sections` is made by one of the kinds below, with its default, range
and description. Reading, `config show`, `config schema`, `config env` and the reference ask the key
and keep no lists of their own. The field of a duration ends in `_s` and that of a size in `_bytes`;
the key in the file does not.

In a file values have TOML's types. In the environment and in flags everything is text, so numbers,
switches and lists (as JSON) are read from text. A text that begins with env:, file: or cred: is
looked up by the caller's function. A secret is not: it stays a reference that is read when it is
needed. Pure.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, ClassVar

from pgflowd.core.redact import one_line
from pgflowd.core.settings.values import (
    ADDRESS,
    DURATION_PATTERN,
    FLOW,
    LOGGER,
    REFERENCE_PATTERN,
    SECONDS,
    SIZE_PATTERN,
    Form,
    Ref,
    Unreadable,
    format_duration,
    format_size,
    parse_address,
    parse_duration,
    parse_size,
)

KeyPath = tuple[str, ...]  # ("worker", "poll_min"), ("flows", "send_email", "poll_min")
LookUp = Callable[[Ref], str]  # raises MissingReference with the cause
Schema = dict[str, Any]

_NO_CONTROL = {"not": {"pattern": r"[\x00-\x1f\x7f-\x9f]"}}  # which no text has
_NOT_ZERO = {"not": {"pattern": "^[^1-9]*$"}}  # of a duration or size
_SWITCHES = {"true": True, "1": True, "false": False, "0": False}
_MAX_CHARS = 60  # of a value in a message


class MissingReference(Exception):
    """The target of a reference does not exist; the text has the cause."""


class InvalidValue(Exception):
    """A value is invalid: the code, what is wrong, and what to do next."""

    def __init__(self, code: str, text: str, next: str | None = None) -> None:
        super().__init__(text)
        self.code, self.text, self.next = code, text, next


@dataclass(frozen=True)
class Origin:
    """Where a value comes from: the kind of place, and the place."""

    kind: str = "default"  # "default" | "file" | "environment" | "flag" | "instance"
    place: str | None = None  # "pgflowd.toml:7", "PGFLOWD__PGFLOWD__NAME", "--database-url"
    reference: str | None = None  # "env:NAME", if this was written instead of the value

    def __str__(self) -> str:
        return self.place or self.kind


@dataclass(frozen=True)
class GivenValue:
    """One value as it was written. `path` is, for example, ("worker", "poll_min")."""

    path: KeyPath
    raw: Any
    origin: Origin
    base: str = "."  # the directory of relative paths
    is_text: bool = False  # from the environment or a flag, where all is text

    def joined(self, path: str) -> str:
        return posixpath.normpath(posixpath.join(self.base, path))

    def from_json(self, kind: type, words: str, example: str, next: str | None = None) -> Any:
        """The list or table, which is written as JSON where all is text."""
        raw = self.raw
        if self.is_text:
            try:
                raw = json.loads(raw)
            except (ValueError, RecursionError):
                name = "list" if kind is list else "object"
                text, remedy = f"is not a JSON {name}", f"write it like '{example}'"
                raise InvalidValue("E103", text, remedy) from None
        if not isinstance(raw, kind):
            raise _wrong_type(raw, words, next)
        return raw


@dataclass(frozen=True)
class Key:
    """One key of the configuration; the kinds of keys are derived from it."""

    default: Any  # as written in the file
    doc: str

    kind: ClassVar[str]  # for people
    suffix: ClassVar[str] = ""  # of the field's name, which the key in the file does not have
    codes: ClassVar[tuple[str, ...]] = ("E103", "E105")  # of what may be wrong with a value alone
    is_text: ClassVar[bool] = False  # so it may be a reference: env:, file: or cred:

    def read(self, given: GivenValue, look_up: LookUp) -> Any:
        """Return the value for a key, or raise InvalidValue."""
        raise NotImplementedError

    def written(self, value: Any) -> Any:
        """Return a value as written in the file, without secrets."""
        return value

    def schema(self) -> Schema:
        """What a value of this key is, without its description and default."""
        raise NotImplementedError

    @property
    def range(self) -> str:
        """What the value must be, in words, besides its kind."""
        return ""

    @property
    def means(self) -> str:
        """The kind and its range in words."""
        return f"{self.kind}, {self.range}" if self.range else self.kind


@dataclass(frozen=True)
class Text(Key):
    """Any text, or one of a form; where the default is empty, it may be empty."""

    form: Form | None = None

    kind = "text"
    codes = ("E103", "E105", "E107")
    is_text = True

    def read(self, given: GivenValue, look_up: LookUp) -> Any:
        ref = _reference(given)
        try:
            value = _printable(look_up(ref)) if ref.scheme else ref.written
        except MissingReference as cause:
            raise InvalidValue("E107", f"is {shown(given.raw)}, and {cause}") from cause
        if value == "" == self.default:
            return value
        return self.checked(value, given, "its value" if ref.scheme else shown(value))

    def checked(self, value: str, given: GivenValue, as_shown: str) -> str:
        """Return the value, which stood at its place or elsewhere, or raise InvalidValue."""
        if self.form and not self.form.fits(value):
            raise _unfit(self.form, f"is {as_shown}")
        return value

    @property
    def range(self) -> str:
        return self.form.means if self.form else ""

    def schema(self) -> Schema:
        pattern = {}
        if self.form:
            empty = [] if self.default else ["^$"]
            pattern = {"pattern": "|".join([*empty, self.form.pattern, REFERENCE_PATTERN])}
        return {"type": "string", **pattern, **_NO_CONTROL}


class Secret(Text):
    """A reference, or the value itself, which is never shown."""

    kind = "text that is never shown"

    def read(self, given: GivenValue, look_up: LookUp) -> Ref:
        ref = _reference(given)
        if given.raw and self.form and not self.form.fits(given.raw):
            raise _unfit(self.form, "is written out")
        return ref

    def written(self, value: Ref) -> str:
        return value.shown


class PathKey(Text):
    """A path, relative to the file."""

    kind = "path"

    def checked(self, value: str, given: GivenValue, as_shown: str) -> str:
        return given.joined(value)


class AddressKey(Text):
    """Where a server listens."""

    kind = "address"

    def checked(self, value: str, given: GivenValue, as_shown: str) -> str:
        try:
            path = parse_address(value).path
        except ValueError:
            raise _unfit(ADDRESS, f"is {as_shown}") from None
        return f"unix:{given.joined(path)}" if path else value


@dataclass(frozen=True)
class Choice(Text):
    """One of several words."""

    choices: tuple[str, ...] = ()

    @property
    def means(self) -> str:
        return _quoted(self.choices)

    def checked(self, value: str, given: GivenValue, as_shown: str) -> str:
        if value not in self.choices:
            raise InvalidValue("E105", f"is {as_shown}; it must be one of {self.means}")
        return value

    def schema(self) -> Schema:
        either = [{"enum": list(self.choices)}, {"pattern": REFERENCE_PATTERN}]
        return {"type": "string", "anyOf": either, **_NO_CONTROL}


class Switch(Key):
    """true or false."""

    kind = "true or false"
    codes = ("E103",)

    def read(self, given: GivenValue, look_up: LookUp) -> bool:
        raw = given.raw
        if given.is_text:
            raw = _SWITCHES.get(raw.strip().lower(), raw)
        if not isinstance(raw, bool):
            raise _wrong_type(raw, self.kind)
        return raw

    def schema(self) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Number(Key):
    """A number from `low` to `high`; or 0, if that is the default."""

    low: Any  # as written in the file
    high: Any

    kind = "whole number"
    expected: ClassVar[str] = "a whole number"
    json_type: ClassVar[str] = "integer"
    types: ClassVar[Any] = int  # of TOML
    in_text: ClassVar[re.Pattern[str]] = re.compile(r"[+-]?[0-9]{1,18}\Z")

    def number(self, written: Any) -> Any:
        return written

    @property
    def _or_zero(self) -> str:
        return "0, or " if self.number(self.default) < self.number(self.low) else ""

    @property
    def range(self) -> str:
        return f"{self._or_zero}{self.low} to {self.high}"

    @property
    def allowed(self) -> str:
        return f"it must be {self._or_zero}from {self.low} to {self.high}"

    def read(self, given: GivenValue, look_up: LookUp) -> Any:
        raw, kind = given.raw, type(self.default)
        if given.is_text and self.in_text.match(raw.strip()):
            raw = kind(raw)
        if not isinstance(raw, self.types) or isinstance(raw, bool):
            raise _wrong_type(raw, self.expected)
        return self.checked(kind(raw), raw)

    def checked(self, value: Any, raw: object) -> Any:
        is_inside = self.number(self.low) <= value <= self.number(self.high)
        if not is_inside and not (value == 0 and self._or_zero):
            raise InvalidValue("E105", f"is {shown(raw)}; {self.allowed}")
        return value

    def schema(self) -> Schema:
        least: Schema = {"minimum": self.low}
        if self._or_zero:
            least = {"anyOf": [{"const": 0}, least]}
        return {"type": self.json_type, **least, "maximum": self.high}


class Share(Number):
    """A number between 0 and 1."""

    kind, expected, json_type, types = "share", "a number", "number", int | float
    in_text = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?\Z")


class WithUnit(Number):
    """A number with a unit, such as a duration."""

    codes = ("E103", "E104", "E105")
    units: ClassVar[str]
    example: ClassVar[str]
    pattern: ClassVar[str]

    def read(self, given: GivenValue, look_up: LookUp) -> Any:
        raw = given.raw
        if isinstance(raw, int | float) and not isinstance(raw, bool):
            remedy = f'write a text such as "{self.example}"; units are {self.units}'
            raise InvalidValue("E104", f"is {shown(raw)}, without a unit", remedy)
        if not isinstance(raw, str):
            raise _wrong_type(raw, f'a text such as "{self.example}"')
        try:
            value = self.number(raw)
        except Unreadable as cause:
            allowed = f"; {self.allowed}" if cause.code == "E105" else ""
            like, units = f'write it like "{self.example}"', f"units are {self.units}"
            next = {"E103": like, "E104": units}.get(cause.code)
            raise InvalidValue(cause.code, f"is {shown(raw)}: {cause}{allowed}", next) from cause
        return self.checked(value, raw)

    def schema(self) -> Schema:
        more = _NOT_ZERO if self.number(self.low) else {}
        return {"type": "string", "pattern": self.pattern, **more}


class Duration(WithUnit):
    kind, suffix = "duration", "_s"
    units, example, pattern = ", ".join(SECONDS), "30s", DURATION_PATTERN

    def number(self, written: Any) -> float:
        return parse_duration(written)

    def written(self, value: float) -> str:
        same = value == self.number(self.default)
        return str(self.default) if same else format_duration(value)


class Size(WithUnit):
    kind, suffix = "size", "_bytes"
    units, example, pattern = "B, KiB, MiB, GiB", "16MiB", SIZE_PATTERN

    def number(self, written: Any) -> int:
        return parse_size(written)

    def written(self, value: int) -> str:
        return format_size(value)


@dataclass(frozen=True)
class TextList(Key):
    """A list of texts, perhaps each of a form."""

    form: Form | None = None

    kind = "list of texts"

    def read(self, given: GivenValue, look_up: LookUp) -> tuple[str, ...]:
        raw = given.from_json(list, "a list of texts", '["a", "b"]')
        for index, element in enumerate(raw):
            if not isinstance(element, str):
                raise InvalidValue("E103", f"[{index}] is {_type_of(element)}; it must be a text")
            _printable(element)
            if self.form and not self.form.fits(element):
                raise _unfit(self.form, f"has {shown(element)}")
        return tuple(raw)

    def written(self, value: tuple[str, ...]) -> list[str]:
        return list(value)

    def schema(self) -> Schema:
        form = {"pattern": self.form.pattern} if self.form else {}
        return {"type": "array", "items": {"type": "string", **form, **_NO_CONTROL}}


class PathList(TextList):
    kind = "list of paths"

    def read(self, given: GivenValue, look_up: LookUp) -> tuple[str, ...]:
        return tuple(given.joined(each) for each in super().read(given, look_up))


class FlowList(TextList):
    """What a daemon serves, each once."""

    codes = ("E103", "E105", "E213")

    def read(self, given: GivenValue, look_up: LookUp) -> tuple[str, ...]:
        entries = super().read(given, look_up)
        for entry in entries:
            if entries.count(entry) > 1:
                raise InvalidValue("E213", f"has {shown(entry)} twice", "remove one of them")
        return entries

    def schema(self) -> Schema:
        return {**super().schema(), "uniqueItems": True}


@dataclass(frozen=True)
class Levels(Key):
    """A table with a level for each of some loggers."""

    choices: tuple[str, ...]

    def read(self, given: GivenValue, look_up: LookUp) -> tuple[tuple[str, str], ...]:
        example, remedy = '{"httpx": "warning"}', 'write it like { httpx = "warning" }'
        raw = given.from_json(dict, "a table of levels", example, remedy)
        for name, level in raw.items():
            if isinstance(level, dict):
                remedy = f"""write '"{one_line(name, _MAX_CHARS)}.…" = "warning"', with quotes"""
                raise InvalidValue("E103", f"has a table at {shown(name)}", remedy)
            if not LOGGER.fits(name):
                raise _unfit(LOGGER, f"has {shown(name)}")
            if level not in self.choices:
                text = f"has {shown(level)} for {shown(name)}; it must be one of {self.means}"
                raise InvalidValue("E105", text)
        return tuple(sorted(raw.items()))

    def written(self, value: tuple[tuple[str, str], ...]) -> dict[str, str]:
        return dict(value)

    def schema(self) -> Schema:
        names = {"pattern": LOGGER.pattern}
        level = {"type": "string", "enum": list(self.choices)}
        return {"type": "object", "propertyNames": names, "additionalProperties": level}

    @property
    def means(self) -> str:
        return _quoted(self.choices)


def _maker(kind: type[Key], **usual: Any) -> Callable[..., Any]:
    """Return what makes a field of a section, from the default, the description and more."""

    def make(default: Any, doc: str, **more: Any) -> Any:
        key = kind(default, doc, **{**usual, **more})
        given = GivenValue((), default, Origin())
        return field(default=key.read(given, lambda ref: ""), metadata={"key": key})

    return make


text, path, secret, switch = map(_maker, (Text, PathKey, Secret, Switch))
address = _maker(AddressKey, form=ADDRESS)
whole = _maker(Number, low=1, high=1_000_000)  # far above any useful number
share = _maker(Share, low=0, high=1)
duration = _maker(Duration, low="1ms", high="365d")
size = _maker(Size, low="1B", high="1GiB")  # the largest value that PostgreSQL stores
texts, paths, flows = _maker(TextList), _maker(PathList), _maker(FlowList, form=FLOW)


def choice(words: str, doc: str) -> Any:
    """A field for one of several words, of which the first is the default."""
    return _maker(Choice, choices=tuple(words.split()))(words.split()[0], doc)


def levels(words: str, doc: str) -> Any:
    return _maker(Levels, choices=tuple(words.split()))({}, doc)


@cache
def keys_of(section: type) -> dict[str, tuple[str, Key]]:
    """Map the names of a section's keys in the file to (name of the field, key)."""
    found: dict[str, Key] = {each.name: each.metadata["key"] for each in fields(section)}
    return {name.removesuffix(key.suffix): (name, key) for name, key in found.items()}


def shown(raw: object) -> str:
    """Write a raw value for a message: short, on one line, without control characters."""
    if isinstance(raw, str):
        return one_line(f"'{raw}'", _MAX_CHARS)
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, int) and abs(raw) > 10**_MAX_CHARS:
        return "a number of more than 60 digits"
    return one_line(str(raw), _MAX_CHARS)


def _reference(given: GivenValue) -> Ref:
    if not isinstance(given.raw, str):
        raise _wrong_type(given.raw, "a text")
    ref = Ref(_printable(given.raw))
    return Ref(f"file:{given.joined(ref.target)}") if ref.scheme == "file" else ref


def _printable(value: str) -> str:
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in value):
        raise InvalidValue("E105", "has control characters or is not UTF-8")
    return value


def _quoted(words: tuple[str, ...]) -> str:
    return ", ".join(f'"{each}"' for each in words)


def _unfit(form: Form, found: str) -> InvalidValue:
    remedy = f"write for example {form.example}" if form.example else None
    return InvalidValue("E105", f"{found}; it must be {form.means}", remedy)


def _wrong_type(raw: object, expected: str, next: str | None = None) -> InvalidValue:
    return InvalidValue("E103", f"is {_type_of(raw)}; it must be {expected}", next)


def _type_of(raw: object) -> str:
    if isinstance(raw, str):
        return f"the text {shown(raw)}"
    names = {bool: "true or false", int: "a whole number", float: "a fraction", list: "a list"}
    return names.get(type(raw), "a table" if isinstance(raw, dict) else "a date or time")
