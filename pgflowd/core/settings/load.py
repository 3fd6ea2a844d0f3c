"""
Makes one Settings from the values of flags, environment and file, and lists all mistakes.

`from_document` flattens a parsed TOML document, `from_environ` reads `PGFLOWD__…` variables and
`from_flags` the command line. `lines_of` finds the lines of keys, which `tomllib` does not report.
`build` takes the given values, those of the strongest source first. Every value is checked, even
if another one overrides it, so that all mistakes are shown at once. The first value of each key
counts; a key without a value keeps its default. Pure.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import (
    GivenValue,
    InvalidValue,
    Key,
    KeyPath,
    LookUp,
    Origin,
    keys_of,
)
from pgflowd.core.settings.rules import contradictions
from pgflowd.core.settings.sections import (
    SECTIONS,
    DaemonSettings,
    FlowSettings,
    Overrides,
    Settings,
)
from pgflowd.core.settings.values import Ref
from pgflowd.core.suggest import nearest
from pgflowd.errors import Problem

Lines = Mapping[KeyPath, int]

PREFIX = "PGFLOWD__"
MAX_HINTS = 100  # "did you mean": each costs time, so only the first mistakes get one
_TOKEN = re.compile(  # of TOML: a string, a comment, a word or a sign
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'|#[^\n]*|[A-Za-z0-9_-]+|[ \t\r]+|.",
    re.S,
)


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, all problems, and the keys whose own value is invalid."""

    settings: Settings
    problems: list[Problem]
    invalid: frozenset[KeyPath]


def variable(*path: str) -> str:
    """Return the environment variable of a key, such as PGFLOWD__WORKER__POLL_MIN."""
    return PREFIX + "__".join(part.upper() for part in path)


def lines_of(text: str) -> dict[KeyPath, int]:
    """
    Return the line of each key and table of a TOML text that `tomllib` has accepted.

    Keys inside of a value, as of an inline table, have the line of the key that the value is of.
    """
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    names: list[str] = []
    line, depth = 1, 0  # how many brackets of a value are open
    is_value = is_header = False
    for token in _TOKEN.findall(text + "\n"):
        if is_value:
            depth += (token in "[{") - (token in "]}")
            is_value = token != "\n" or depth > 0
        elif token in ("=", "\n"):
            start = () if is_header else table
            for count in range(1, len(names) + 1):
                found.setdefault((*start, *names[:count]), line)
            table, is_header = (tuple(names), False) if is_header else (table, False)
            names, is_value = [], token == "="
        elif token == "[":
            is_header = True
        elif token[0] in "\"'":
            names.append(tomllib.loads(f"key = {token}")["key"])
        elif token[0] not in "#]. \t\r":
            names.append(token)
        line += token.count("\n")
    return found


def from_document(
    document: Mapping[str, Any], lines: Lines, file: str, base: str, prefix: KeyPath = ()
) -> list[GivenValue]:
    """
    Flatten a document. In a pyproject.toml `prefix` is ("tool", "pgflowd"), and the keys of
    [pgflowd] may be in [tool.pgflowd] itself.
    """

    found: list[GivenValue] = []

    def add(path: KeyPath, raw: Any, at: KeyPath) -> None:
        above = ((*prefix, *at)[:count] for count in range(len(prefix) + len(at), 0, -1))
        line = next((lines[path] for path in above if path in lines), None)
        place = f"{file}:{line}" if line else file
        found.append(GivenValue(path, raw, Origin("file", place), base))

    for section, content in document.items():
        if not isinstance(content, dict):
            is_inside = bool(prefix) and section in keys_of(DaemonSettings)
            add(("pgflowd", section) if is_inside else (section,), content, (section,))
        elif section != "flows" and section not in SECTIONS:
            add((section,), content, (section,))
        else:
            for key, raw in content.items():
                add((section, key), raw, (section, key))
                if section == "flows" and isinstance(raw, dict):
                    for inner, value in raw.items():
                        add((section, key, inner), value, (section, key, inner))
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
    return path[-1] in keys and keys[path[-1]][1].is_text


def build(
    given: Sequence[GivenValue],
    look_up: LookUp,
    *,
    file: str | None = None,
    instance: str | None = None,
) -> LoadedSettings:
    """Return the settings and all problems. If one of these is an error, ignore the settings."""
    values = _Values(look_up)
    for each in given:
        values.add(each)
    if instance is not None:
        values.parsed.setdefault(("pgflowd", "name"), instance)
        values.origins.setdefault(("pgflowd", "name"), Origin("instance", "--instance"))
    settings = values.settings(file)
    problems = [*values.problems, *contradictions(settings, values.invalid)]
    return LoadedSettings(settings, problems, frozenset(values.invalid))


def label(path: KeyPath) -> str:
    """Name a key for people: [worker] poll_min."""
    if len(path) == 1:
        return one_line(path[0], 60)
    return f"[{'.'.join(one_line(part, 60) for part in path[:-1])}] {one_line(path[-1], 60)}"


class _Values:
    """The values parsed so far, and their mistakes."""

    def __init__(self, look_up: LookUp) -> None:
        self.look_up = look_up
        self.parsed: dict[KeyPath, Any] = {}
        self.origins: dict[KeyPath, Origin] = {}
        self.slugs: dict[str, str] = {}  # in lower case: as written
        self.invalid: set[KeyPath] = set()
        self.problems: dict[Problem, None] = {}  # each once, in their order
        self._hints = MAX_HINTS

    def add(self, given: GivenValue) -> None:
        try:
            path, key = self._locate(given)
            if key is None:
                self.origins.setdefault(path, given.origin)
                return
            self._refuse_duplicate(path, given)
            value = key[1].read(given, self.look_up)
        except InvalidValue as error:
            unknown = error.code == "E102" and given.origin.kind == "environment"
            self._add_problem(given, _unknown_variable(given) if unknown else error)
            return
        if path not in self.parsed and path not in self.invalid:
            self.parsed[path], origin = value, given.origin
            if isinstance(given.raw, str) and Ref(given.raw).scheme is not None:
                origin = replace(origin, reference=given.raw)  # only this may be shown
            self.origins[path] = origin

    def settings(self, file: str | None) -> Settings:
        sections = {
            name: section(**self._fields_of((name,), section)) for name, section in SECTIONS.items()
        }
        flows = {lower: self._overrides(lower, slug) for lower, slug in self.slugs.items()}
        return Settings(**sections, flows=flows, file=file, origins=dict(self.origins))

    def _refuse_duplicate(self, path: KeyPath, given: GivenValue) -> None:
        """Refuse a key that a pyproject.toml has in [tool.pgflowd] and one level deeper too."""
        before = self.origins.get(path)
        if before and path in self.parsed and before.kind == given.origin.kind == "file":
            raise InvalidValue("E106", f"is set twice, also at {before}", "remove one of them")

    def _locate(self, given: GivenValue) -> tuple[KeyPath, tuple[str, Key] | None]:
        """Find the key of a path; None means the table of a flow itself."""
        path, raw = given.path, given.raw
        prefix, section = path[:1], SECTIONS.get(path[0])
        if path[0] == "flows" and len(path) > 1:
            prefix, section = ("flows", self._lower_slug(given)), FlowSettings
        if section is None:
            raise _unknown_section(path, [*SECTIONS, "flows"] if self._may_hint() else [])
        if len(path) == len(prefix):
            if section is FlowSettings and isinstance(raw, dict):
                return prefix, None
            table = ".".join(one_line(part, 60) for part in path)
            raise InvalidValue("E103", "is not a table", f"write [{table}] on a line of its own")
        keys = keys_of(section)
        if path[-1] not in keys:
            raise _unknown_key(path, keys if self._may_hint() else {}, raw)
        return (*prefix, path[-1]), keys[path[-1]]

    def _lower_slug(self, given: GivenValue) -> str:
        """Return the flow's slug in lower case; refuse two that differ in case only."""
        slug, lower = given.path[1], given.path[1].lower()
        written = self.slugs.setdefault(lower, slug)
        if written != slug and given.origin.kind == "file":
            same = f"[flows.{one_line(written, 60)}] and [flows.{one_line(slug, 60)}]"
            raise InvalidValue("E207", f"{same} differ in case only", "merge them")
        return lower

    def _may_hint(self) -> bool:
        """Whether to search for a similar name this time."""
        self._hints -= 1
        return self._hints >= 0

    def _fields_of(self, prefix: KeyPath, section: type) -> dict[str, Any]:
        return {
            name: self.parsed[(*prefix, key)]
            for key, (name, _) in keys_of(section).items()
            if (*prefix, key) in self.parsed
        }

    def _overrides(self, lower: str, slug: str) -> Overrides:
        fields = self._fields_of(("flows", lower), FlowSettings)
        return Overrides(slug, fields.pop("enabled", True), fields)

    def _add_problem(self, given: GivenValue, error: InvalidValue) -> None:
        names_its_key = error.code in {"E102", "E207"}
        between = "" if error.text.startswith("[") else " "
        text = error.text if names_its_key else f"{label(given.path)}{between}{error.text}"
        problem = Problem(error.code, text, given.origin.place, error.next)
        self.problems[problem] = None
        lowered = given.path[1].lower() if given.path[0] == "flows" and len(given.path) > 1 else ""
        self.invalid.add(("flows", lowered, *given.path[2:]) if lowered else given.path)


def _unknown_section(path: KeyPath, known: list[str]) -> InvalidValue:
    name = one_line(path[0], 60)
    if len(path) == 1:
        homes = [section for section, keys in SECTIONS.items() if path[0] in keys_of(keys)]
        if homes:
            return InvalidValue(
                "E102", f"'{name}' is outside of any section", f"it belongs in [{homes[0]}]"
            )
    text = f"there is no section [{name}]"
    return InvalidValue("E102", text, _did_you_mean(path[0], known, "[{}]"))


def _unknown_key(path: KeyPath, keys: Mapping[str, Any], raw: object) -> InvalidValue:
    name = one_line(path[-1], 60)
    section = ".".join(one_line(part, 60) for part in path[:-1])
    text = f"[{section}] has no key '{name}'"
    if isinstance(raw, dict):
        text = f"there is no section [{section}.{name}]"
    homes = [other for other, known in SECTIONS.items() if path[-1] in keys_of(known)]
    if homes:
        return InvalidValue("E102", text, f"it belongs in [{homes[0]}]")
    return InvalidValue("E102", text, _did_you_mean(path[-1], list(keys), "'{}'"))


def _unknown_variable(given: GivenValue) -> InvalidValue:
    """Suggest the whole name of a variable, not only the key."""
    flow = given.path[1] if given.path[0] == "flows" and len(given.path) > 2 else "<SLUG>"
    known = [variable(section, key) for section, keys in SECTIONS.items() for key in keys_of(keys)]
    known += [variable("flows", flow, key) for key in keys_of(FlowSettings)]
    close = nearest(given.origin.place or "", known)
    remedy = f"did you mean {one_line(close, 120)}?" if close else "see pgflowd config env"
    return InvalidValue("E102", "this variable belongs to no key", remedy)


def _did_you_mean(name: str, known: list[str], form: str) -> str | None:
    close = nearest(name, known)
    return f"did you mean {form.format(close)}?" if close else None
