"""
Collects the values of a document, the environment and the flags in one common form.

`from_document` flattens a parsed TOML document, `from_environ` reads `PGFLOWD__…` variables and
`from_flags` the command line. All return a `GivenValue` each. Its path may name a key that does not
exist; `core.settings.load` reports that. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pgflowd.core.redact import one_line
from pgflowd.core.settings.keys import keys_of
from pgflowd.core.settings.sections import SECTIONS, DaemonSettings, FlowSettings, Origin
from pgflowd.core.settings.values import GivenValue
from pgflowd.errors import Problem

PREFIX = "PGFLOWD__"
Lines = Mapping[tuple[str | int, ...], int]


def variable(*path: str) -> str:
    """Return the environment variable of a key, such as PGFLOWD__WORKER__POLL_MIN."""
    return PREFIX + "__".join(part.upper() for part in path)


def from_document(
    document: Mapping[str, Any], lines: Lines, file: str, base: str, prefix: tuple[str, ...] = ()
) -> list[GivenValue]:
    """
    Flatten a document. In a pyproject.toml `prefix` is ("tool", "pgflowd"), and the keys of
    [pgflowd] may be in [tool.pgflowd] itself.
    """

    def given(path: tuple[str, ...], raw: Any, at: tuple[str, ...]) -> GivenValue:
        line = lines.get((*prefix, *at))
        return GivenValue(path, raw, Origin("file", f"{file}:{line}" if line else file), base)

    found = []
    for section, content in document.items():
        if not isinstance(content, dict):
            inside = prefix and section in keys_of(DaemonSettings)
            found.append(given(("pgflowd", section) if inside else (section,), content, (section,)))
        elif section == "flows":
            for slug, keys in content.items():
                found.append(given((section, slug), keys, (section, slug)))
                for key, raw in keys.items() if isinstance(keys, dict) else ():
                    found.append(given((section, slug, key), raw, (section, slug, key)))
        elif section not in SECTIONS:
            found.append(given((section,), content, (section,)))
        else:
            found += [given((section, k), raw, (section, k)) for k, raw in content.items()]
    return found


def from_environ(
    environ: Mapping[str, str], slugs: Iterable[str], cwd: str
) -> tuple[list[GivenValue], list[Problem]]:
    """
    Read the PGFLOWD__ variables. `slugs` are those of [flows.x] in the file: if one is `sendEmail`,
    then SEND_EMAIL means that.
    """
    known = _known_variables(slugs)
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


def from_flags(
    flags: Mapping[str, tuple[tuple[str, ...], str | None]], cwd: str
) -> list[GivenValue]:
    """Read the flags: {"--database-url": (("database", "url"), "postgresql://…")}."""
    return [
        GivenValue(path, raw, Origin("flag", name), cwd, is_text=True)
        for name, (path, raw) in flags.items()
        if raw is not None
    ]


def _known_variables(slugs: Iterable[str]) -> dict[str, tuple[str, ...]]:
    paths: list[tuple[str, ...]] = [
        (section, key) for section, keys in SECTIONS.items() for key in keys_of(keys)
    ]
    paths += [("flows", slug, key) for slug in slugs for key in keys_of(FlowSettings)]
    return {variable(*path): path for path in paths}


def _path_of(name: str, known: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    if name in known:
        return known[name]
    rest = name.removeprefix(PREFIX).lower()
    if rest.startswith("flows__"):
        slug, _, key = rest.removeprefix("flows__").rpartition("__")
        return ("flows", slug, key)
    return tuple(rest.split("__", 1))


def _takes_file(path: tuple[str, ...]) -> bool:
    section = FlowSettings if path[0] == "flows" else SECTIONS.get(path[0])
    keys = keys_of(section) if section else {}
    return path[-1] in keys and keys[path[-1]][1].kind.is_text
