"""
Reads file, environment and flags, and returns checked settings or all mistakes.

Strongest first: flag, environment, file, default. All mistakes are collected and raised as one
ConfigError, sorted by place. The settings carry the warnings. A daemon that is about to serve
passes `serving=True`: then flows must be configured and secrets readable. All decisions are made
in `core.settings.load`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypedDict, Unpack

from pgflowd.core.settings.given_values import from_environ, from_flags
from pgflowd.core.settings.load import build
from pgflowd.core.settings.rules import missing_flows, socket_too_long
from pgflowd.core.settings.sections import Settings
from pgflowd.errors import ConfigError, Problem
from pgflowd.host.config_file import ETC, read_config
from pgflowd.host.config_refs import find, unreadable

Flags = Mapping[str, tuple[tuple[str, ...], str | None]]


class ConfigSources(TypedDict, total=False):
    """The arguments of `load`, as of `load_with_problems`."""

    config: str | None
    instance: str | None
    flags: Flags | None
    serving: bool
    environ: Mapping[str, str] | None
    cwd: Path | None
    etc: Path


def load(**sources: Unpack[ConfigSources]) -> Settings:
    """Return the settings, or raise ConfigError with all problems."""
    settings, problems = load_with_problems(**sources)
    if any(not problem.is_warning for problem in problems):
        raise ConfigError(problems)
    return settings


def load_with_problems(
    *,
    config: str | None = None,
    instance: str | None = None,
    flags: Flags | None = None,
    serving: bool = False,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    etc: Path = ETC,
) -> tuple[Settings, list[Problem]]:
    """Return the settings, with the default for each invalid key, and all problems."""
    environ = os.environ if environ is None else environ
    cwd = (cwd or Path.cwd()).absolute()
    file = read_config(config, instance, environ, cwd, etc)
    slugs = [given.path[1] for given in file.given if given.path[0] == "flows" and given.path[1:]]
    variables, conflicts = from_environ(environ, slugs, str(cwd))
    given = [*from_flags(flags or {}, str(cwd)), *variables, *file.given]

    name = str(file.path) if file.path else None
    loaded = build(given, lambda ref: find(ref, environ), file=name, instance=instance)
    settings = loaded.settings
    problems = [*file.problems, *conflicts, *loaded.problems]
    problems += socket_too_long(settings, control_path(settings, environ))
    if serving:
        problems += unreadable(settings, environ)
    is_read = all(problem.is_warning for problem in file.problems)  # so that its flows are known
    if serving and ("pgflowd", "flows") not in loaded.invalid and is_read:
        searched = f"pgflowd.toml, pyproject.toml, {etc}/pgflowd.toml"
        problems += missing_flows(settings, file.shown or searched)
    problems.sort(key=_place_and_line)
    return replace(settings, warnings=tuple(each for each in problems if each.is_warning)), problems


def control_path(settings: Settings, environ: Mapping[str, str] | None = None) -> str:
    """Return the path of the control socket, as configured or in the runtime directory."""
    if settings.supervisor.control:
        return settings.supervisor.control
    environ = os.environ if environ is None else environ
    return str(runtime_directory(environ, os.geteuid()) / f"{settings.pgflowd.name}.sock")


def runtime_directory(environ: Mapping[str, str], uid: int) -> Path:
    """Return systemd's runtime directory, or else the user's. It is not created here."""
    given = environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    if uid == 0:
        return Path("/run/pgflowd")
    session = environ.get("XDG_RUNTIME_DIR")
    return Path(session) / "pgflowd" if session else Path(f"/tmp/pgflowd-{uid}")


def _place_and_line(problem: Problem) -> tuple[str, int]:
    place, _, line = (problem.place or "").rpartition(":")
    return (place, int(line)) if line.isdecimal() and line.isascii() else (problem.place or "", 0)
