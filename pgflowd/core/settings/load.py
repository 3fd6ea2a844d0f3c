"""
Makes one Settings from the values of flags, environment and file, and lists all mistakes.

`build` takes the given values, those of the strongest source first. Every value is checked, even
if another one overrides it, so that all mistakes are shown at once. The first value of each key
counts; a key without a value keeps its default. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgflowd.core.redact import one_line
from pgflowd.core.settings.given_values import GivenValue, InvalidValue, LookUp, parse, variable
from pgflowd.core.settings.keys import Key, KeyPath, keys_of
from pgflowd.core.settings.rules import contradictions
from pgflowd.core.settings.sections import SECTIONS, FlowSettings, Origin, Overrides, Settings
from pgflowd.core.settings.values import Ref
from pgflowd.core.suggest import nearest
from pgflowd.errors import Problem

MAX_HINTS = 100  # "did you mean": each costs time, so only the first mistakes get one


@dataclass(frozen=True)
class LoadedSettings:
    """The settings, all problems, and the keys whose own value is invalid."""

    settings: Settings
    problems: list[Problem]
    invalid: frozenset[KeyPath]


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
            value = parse(key[1], given, self.look_up)
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
