"""
Collects the given values of a document, the environment and the flags, and parses one for its key.

`from_document` flattens a parsed TOML document, `from_environ` reads `PGFLOWD__…` variables and
`from_flags` the command line. The path of a `GivenValue` may name a key that does not exist;
`core.settings.load` reports that. `parse` returns the value for a key. In a file values have TOML's
types. In the environment and in flags everything is text, so numbers, switches and lists (as JSON)
are read from text. A text that begins with env:, file: or cred: is looked up by the caller's
function. A secret is not: it stays a reference that is read when it is needed. Pure.
"""

from __future__ import annotations

import json
import posixpath
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pgflowd.core.redact import one_line
from pgflowd.core.settings.forms import Form
from pgflowd.core.settings.keys import Key, KeyKind, KeyPath, keys_of
from pgflowd.core.settings.sections import SECTIONS, DaemonSettings, FlowSettings, Origin
from pgflowd.core.settings.values import (
    NotPositive,
    NotReadable,
    NoUnit,
    Ref,
    parse_address,
    parse_duration,
    parse_size,
)
from pgflowd.errors import Problem

LookUp = Callable[[Ref], str]  # raises MissingReference with the cause
Lines = Mapping[tuple[str | int, ...], int]

PREFIX = "PGFLOWD__"
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}\Z")
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,17})?\Z")
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
class GivenValue:
    """One value as it was written. `path` is, for example, ("worker", "poll_min")."""

    path: KeyPath
    raw: Any
    origin: Origin
    base: str = "."  # the directory of relative paths
    is_text: bool = False  # from the environment or a flag, where all is text


def variable(*path: str) -> str:
    """Return the environment variable of a key, such as PGFLOWD__WORKER__POLL_MIN."""
    return PREFIX + "__".join(part.upper() for part in path)


def from_document(
    document: Mapping[str, Any], lines: Lines, file: str, base: str, prefix: KeyPath = ()
) -> list[GivenValue]:
    """
    Flatten a document. In a pyproject.toml `prefix` is ("tool", "pgflowd"), and the keys of
    [pgflowd] may be in [tool.pgflowd] itself.
    """

    found: list[GivenValue] = []

    def add(path: KeyPath, raw: Any, at: KeyPath | None = None) -> None:
        line = lines.get((*prefix, *(at or path)))
        place = f"{file}:{line}" if line else file
        found.append(GivenValue(path, raw, Origin("file", place), base))

    for section, content in document.items():
        if not isinstance(content, dict):
            is_inside = bool(prefix) and section in keys_of(DaemonSettings)
            add(("pgflowd", section) if is_inside else (section,), content, at=(section,))
        elif section == "flows":
            for slug, keys in content.items():
                add((section, slug), keys)
                for key, raw in keys.items() if isinstance(keys, dict) else ():
                    add((section, slug, key), raw)
        elif section in SECTIONS:
            for key, raw in content.items():
                add((section, key), raw)
        else:
            add((section,), content)
    return found


def from_environ(
    environ: Mapping[str, str], slugs: Iterable[str], cwd: str
) -> tuple[list[GivenValue], list[Problem]]:
    """
    Read the PGFLOWD__ variables. `slugs` are those of [flows.x] in the file: if one is `sendEmail`,
    then SEND_EMAIL means that.
    """
    paths: list[KeyPath] = [(name, key) for name, keys in SECTIONS.items() for key in keys_of(keys)]
    paths += [("flows", slug, key) for slug in slugs for key in keys_of(FlowSettings)]
    known = {variable(*path): path for path in paths}
    found, problems = [], []
    for name in sorted(name for name in environ if name.startswith(PREFIX)):
        path, raw = _path_of(name, known), environ[name]
        if path not in known.values() and name.endswith("_FILE"):
            plain = name.removesuffix("_FILE")
            if _takes_file(_path_of(plain, known)):
                path, raw = _path_of(plain, known), f"file:{environ[name]}"
                if plain in environ:
                    text = f"{one_line(name)} and {one_line(plain)} are both set"
                    problems.append(Problem("E106", text, one_line(name), "unset one of them"))
        origin = Origin("environment", one_line(name))
        found.append(GivenValue(path, raw, origin, cwd, is_text=True))
    return found, problems


def from_flags(flags: Mapping[str, tuple[KeyPath, str | None]], cwd: str) -> list[GivenValue]:
    """Read the flags: {"--database-url": (("database", "url"), "postgresql://…")}."""
    return [
        GivenValue(path, raw, Origin("flag", name), cwd, is_text=True)
        for name, (path, raw) in flags.items()
        if raw is not None
    ]


def _path_of(name: str, known: Mapping[str, KeyPath]) -> KeyPath:
    if name in known:
        return known[name]
    rest = name.removeprefix(PREFIX).lower()
    if rest.startswith("flows__"):
        slug, _, key = rest.removeprefix("flows__").rpartition("__")
        return ("flows", slug, key)
    return tuple(rest.split("__", 1))


def _takes_file(path: KeyPath) -> bool:
    section = FlowSettings if path[0] == "flows" else SECTIONS.get(path[0])
    keys = keys_of(section) if section else {}
    return path[-1] in keys and keys[path[-1]][1].kind.is_text


def parse(key: Key, given: GivenValue, look_up: LookUp) -> Any:
    """Return the value for a key, or raise InvalidValue."""
    if key.kind.is_text:
        return _text(key, given, look_up)
    if key.kind.is_list:
        return _list(key, given)
    if key.kind is KeyKind.LEVELS:
        return _levels(key, given)
    raw = _from_text(key, given.raw) if given.is_text else given.raw
    if key.kind is KeyKind.SWITCH:
        if not isinstance(raw, bool):
            raise _wrong_type(raw, "true or false")
        return raw
    if key.kind is KeyKind.WHOLE:
        if not isinstance(raw, int) or isinstance(raw, bool):
            raise _wrong_type(raw, "a whole number")
        return _in_range(key, raw, shown(raw))
    if key.kind is KeyKind.SHARE:
        if not isinstance(raw, int | float) or isinstance(raw, bool):
            raise _wrong_type(raw, "a number")
        return _in_range(key, float(raw), shown(raw))
    return _with_unit(key, raw)


def shown(raw: object) -> str:
    """Write a raw value for a message: short, on one line, without control characters."""
    if isinstance(raw, str):
        return one_line(f"'{raw}'", _MAX_CHARS)
    if isinstance(raw, bool):
        return str(raw).lower()
    if isinstance(raw, int) and abs(raw) > 10**_MAX_CHARS:
        return "a number of more than 60 digits"
    return one_line(str(raw), _MAX_CHARS)


def _text(key: Key, given: GivenValue, look_up: LookUp) -> Any:
    raw = given.raw
    if not isinstance(raw, str):
        raise _wrong_type(raw, "a text")
    ref = Ref(_printable(raw))
    if ref.scheme == "file":
        ref = Ref(f"file:{_joined(given.base, ref.target)}")
    if key.kind is KeyKind.SECRET:
        if raw and key.form and not key.form.fits(raw):
            raise _unfit(key.form, "is written out")
        return ref
    try:
        value = look_up(ref) if ref.scheme else raw
    except MissingReference as cause:
        raise InvalidValue("E107", f"is {shown(raw)}, and {cause}") from cause
    if ref.scheme:
        _printable(value)
    if value == "" and key.may_be_empty:
        return value
    if key.kind is KeyKind.PATH:
        return _joined(given.base, value)
    as_shown = "its value" if ref.scheme else shown(value)
    if key.kind is KeyKind.ADDRESS:
        return _address(key, value, given.base, as_shown)
    if key.form and not key.form.fits(value):
        raise _unfit(key.form, f"is {as_shown}")
    if key.kind is KeyKind.CHOICE and value not in key.choices:
        allowed = ", ".join(f'"{each}"' for each in key.choices)
        raise InvalidValue("E105", f"is {as_shown}; it must be one of {allowed}")
    return value


def _address(key: Key, value: str, base: str, as_shown: str) -> str:
    assert key.form is not None
    try:
        path = parse_address(value).path
    except ValueError:
        raise _unfit(key.form, f"is {as_shown}") from None
    return f"unix:{_joined(base, path)}" if path else value


def _list(key: Key, given: GivenValue) -> tuple[str, ...]:
    raw = given.raw
    if given.is_text:
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            raise InvalidValue(
                "E103", "is not a JSON list", """write it like '["a", "b"]'"""
            ) from None
    if not isinstance(raw, list):
        raise _wrong_type(raw, "a list of texts")
    for index, element in enumerate(raw):
        if not isinstance(element, str):
            raise InvalidValue("E103", f"[{index}] is {_type_of(element)}; it must be a text")
        _printable(element)
        if key.form and not key.form.fits(element):
            raise _unfit(key.form, f"has {shown(element)}")
        if key.kind is KeyKind.FLOWS and raw.count(element) > 1:
            raise InvalidValue("E213", f"has {shown(element)} twice", "remove one of them")
    if key.kind is KeyKind.PATHS:
        return tuple(_joined(given.base, element) for element in raw)
    return tuple(raw)


def _levels(key: Key, given: GivenValue) -> tuple[tuple[str, str], ...]:
    assert key.form is not None
    raw = given.raw
    if given.is_text:
        try:
            raw = json.loads(raw)
        except (ValueError, RecursionError):
            remedy = """write it like '{"httpx": "warning"}'"""
            raise InvalidValue("E103", "is not a JSON object", remedy) from None
    if not isinstance(raw, dict):
        raise _wrong_type(raw, "a table of levels", 'write it like { httpx = "warning" }')
    for name, level in raw.items():
        if isinstance(level, dict):
            remedy = f"""write '"{one_line(name, _MAX_CHARS)}.…" = "warning"', with quotes"""
            raise InvalidValue("E103", f"has a table at {shown(name)}", remedy)
        if not key.form.fits(name):
            raise _unfit(key.form, f"has {shown(name)}")
        if level not in key.choices:
            allowed = ", ".join(f'"{each}"' for each in key.choices)
            text = f"has {shown(level)} for {shown(name)}; it must be one of {allowed}"
            raise InvalidValue("E105", text)
    return tuple(sorted(raw.items()))


def _with_unit(key: Key, raw: object) -> Any:
    units = "ms, s, m, h, d" if key.kind is KeyKind.DURATION else "B, KiB, MiB, GiB"
    example = "30s" if key.kind is KeyKind.DURATION else "16MiB"
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        remedy = f'write a text such as "{example}"; units are {units}'
        raise InvalidValue("E104", f"is {shown(raw)}, without a unit", remedy)
    if not isinstance(raw, str):
        raise _wrong_type(raw, f'a text such as "{example}"')
    try:
        value = parse_duration(raw) if key.kind is KeyKind.DURATION else parse_size(raw)
    except NoUnit as cause:
        raise InvalidValue("E104", f"is {shown(raw)}: {cause}", f"units are {units}") from cause
    except NotPositive as cause:
        raise InvalidValue("E105", f"is {shown(raw)}: {cause}; {_allowed(key)}") from cause
    except NotReadable as cause:
        raise InvalidValue(
            "E103", f"is {shown(raw)}: {cause}", f'write it like "{example}"'
        ) from cause
    return _in_range(key, value, shown(raw))


def _in_range(key: Key, value: Any, as_shown: str) -> Any:
    assert key.low is not None and key.high is not None
    if not (key.low <= value <= key.high or (key.may_be_zero and value == 0)):
        raise InvalidValue("E105", f"is {as_shown}; {_allowed(key)}")
    return value


def _allowed(key: Key) -> str:
    zero = "0, or " if key.may_be_zero else ""
    return f"it must be {zero}from {key.limits[0]} to {key.limits[1]}"


def _unfit(form: Form, found: str) -> InvalidValue:
    remedy = f"write for example {form.example}" if form.example else None
    return InvalidValue("E105", f"{found}; it must be {form.means}", remedy)


def _from_text(key: Key, raw: str) -> object:
    """Read a number or a switch from the environment; any other text stays a text."""
    if key.kind is KeyKind.SWITCH:
        return _SWITCHES.get(raw.strip().lower(), raw)
    if key.kind is KeyKind.WHOLE and _WHOLE.match(raw.strip()):
        return int(raw)
    if key.kind is KeyKind.SHARE and _NUMBER.match(raw.strip()):
        return float(raw)
    return raw


def _printable(value: str) -> str:
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in value):
        raise InvalidValue("E105", "has control characters or is not UTF-8")
    return value


def _joined(base: str, path: str) -> str:
    return posixpath.normpath(posixpath.join(base, path))


def _wrong_type(raw: object, expected: str, next: str | None = None) -> InvalidValue:
    return InvalidValue("E103", f"is {_type_of(raw)}; it must be {expected}", next)


def _type_of(raw: object) -> str:
    if isinstance(raw, str):
        return f"the text {shown(raw)}"
    names = {bool: "true or false", int: "a whole number", float: "a fraction", list: "a list"}
    return names.get(type(raw), "a table" if isinstance(raw, dict) else "a date or time")
