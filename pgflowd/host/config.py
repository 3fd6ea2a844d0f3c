"""
Reads file, environment and flags, and returns checked settings or all mistakes.

Strongest first: flag, environment, file, default. All mistakes are collected and raised as one
ConfigError, sorted by place. The settings carry the warnings. A daemon that is about to serve
passes `serving=True`: then flows must be configured and secrets readable. All decisions about
values are made in `core.settings.load`.

The first of these files is read: `--config`, `--instance`, `$PGFLOWD_CONFIG`, `./pgflowd.toml`,
`[tool.pgflowd]` in `./pyproject.toml`, `/etc/pgflowd/pgflowd.toml`. A file in the current
directory never hides an instance that the command line names. A file is not required: every key
has a default and an environment variable.

References are read here, too: environment variables, files and systemd credentials. A secret is
read each time it is needed and never kept, so a rotated one works at the next connect. A missing
target is E107, with the cause. Files must be regular and small; one line break at the end is not
part of the value.

While `pgflowd dev` runs, a file gives other terminals the URL of its database: `dev` holds a lock
on `.pgflowd/dev.url` next to the config file. Without the lock the file is left over from a kill
and is ignored.
"""

from __future__ import annotations

import ast
import fcntl
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, TypedDict, Unpack

from pgflowd.core.redact import one_line, redact, secrets_in
from pgflowd.core.settings.keys import GivenValue, MissingReference, Secret
from pgflowd.core.settings.load import (
    Lines,
    build,
    from_document,
    from_environ,
    from_flags,
    key_of,
    label,
    lines_of,
    missing_flows,
    socket_too_long,
)
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import NAME, URL_NEXT, Ref
from pgflowd.errors import ConfigError, Problem

Flags = Mapping[str, tuple[tuple[str, ...], str | None]]
ETC = Path("/etc/pgflowd")
MAX_BYTES = 1024 * 1024  # of the config file; an endless file ends here
_IN_PYPROJECT = ("tool", "pgflowd")
_KEY = re.compile(r"""\((?:(?:'[^']*'|"[^"]*")(?:, |,?(?=\))))+\)""")  # as a tuple of Python


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
    problems.sort(key=attrgetter("position"))
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


@dataclass
class FileContent:
    """The values and problems of a config file."""

    path: Path | None = None
    shown: str = ""  # the path as messages call it
    given: list[GivenValue] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def read_config(
    config: str | None,
    instance: str | None,
    environ: Mapping[str, str],
    cwd: Path,
    etc: Path = ETC,
) -> FileContent:
    """Find the config file and read it."""
    if instance is not None and not NAME.fits(instance):
        text = f"'{one_line(instance, 60)}' is not a valid name of an instance"
        remedy = f"use {NAME.means}"
        return FileContent(problems=[Problem("E105", text, "--instance", remedy)])
    named = environ.get("PGFLOWD_CONFIG")
    if config is not None:
        return _read(cwd / config, cwd)
    if instance is not None:
        return _read(etc / f"{instance}.toml", cwd)
    if named:
        return _read(cwd / named, cwd)
    if os.path.lexists(cwd / "pgflowd.toml"):
        return _read(cwd / "pgflowd.toml", cwd)
    pyproject = _read(cwd / "pyproject.toml", cwd, _IN_PYPROJECT)
    if pyproject.path is None and os.path.lexists(etc / "pgflowd.toml"):
        return _read(etc / "pgflowd.toml", cwd)
    return pyproject


def _read(path: Path, cwd: Path, prefix: tuple[str, ...] = ()) -> FileContent:
    """Read one file. A pyproject.toml without our table counts as no file (no path)."""
    relative = path.relative_to(cwd) if path.is_relative_to(cwd) else path
    shown = one_line(str(relative), 200)
    try:
        mode, content = _content(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        text, remedy = f"the config file cannot be read: {reason}", "name another one with --config"
        problem = Problem("E101", text, shown, remedy)
        return FileContent() if prefix else FileContent(path, shown, problems=[problem])
    if prefix and b"pgflowd" not in content:
        return FileContent()
    try:
        document, lines = _parsed(content)
    except ValueError as error:
        return FileContent(path, shown, problems=[_not_toml(error, content, shown)])
    for name in prefix:
        document = document.get(name, {}) if isinstance(document, dict) else {}
    if prefix and not document:
        return FileContent()
    if not isinstance(document, dict):
        place = f"{shown}:{lines[prefix]}" if prefix in lines else shown
        text, remedy = "tool.pgflowd is not a table", "write [tool.pgflowd] on a line of its own"
        return FileContent(path, shown, problems=[Problem("E103", text, place, remedy)])
    given = from_document(document, lines, shown, str(path.parent.absolute()), prefix)
    # W110 for each secret in this file, or in a file it names, that others can read
    problems = []
    for each in given:
        if not isinstance(key_of(each.path), Secret) or not isinstance(each.raw, str):
            continue
        ref, readable, holder = Ref(each.raw), mode & 0o004, shown
        if ref.scheme == "file":
            target, of_target = Path(each.base) / ref.target, 0
            with suppress(OSError, ValueError):
                of_target = target.stat().st_mode
            # anything else is E107, and chmod would not help
            readable = stat.S_ISREG(of_target) and of_target & 0o004
            holder = one_line(str(target), 200)
        elif ref.scheme or not secrets_in(each.raw):
            continue
        if readable:
            what = "a token" if each.path[-1] == "token" else "a password"
            text = f"{label(each.path)} holds {what} that others can read in {holder}"
            remedy = f"chmod o-r {holder}, or use env:, file: or cred:"
            problems.append(Problem("W110", text, each.origin.place, remedy))
    return FileContent(path, shown, given, problems)


def _content(path: Path) -> tuple[int, bytes]:
    """Read a file, or a pipe such as `-c <(sops -d …)` that has a writer."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        os.set_blocking(handle, True)
        mode = os.fstat(handle).st_mode
        content = file.read(MAX_BYTES + 1)
    if stat.S_ISFIFO(mode) and not content:
        raise ValueError("it is a pipe without a writer")
    return mode, content


def _parsed(content: bytes) -> tuple[Any, Lines]:
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES // 1024} KiB")
    text = content.decode("utf-8-sig")
    try:
        return tomllib.loads(text), lines_of(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _not_toml(error: ValueError, content: bytes, shown: str) -> Problem:
    """Return E109 with the line, which tomllib puts at the end of its message."""
    if isinstance(error, UnicodeDecodeError):
        line = content.count(b"\n", 0, error.start) + 1
        return Problem("E109", "it is not UTF-8", f"{shown}:{line}")
    text = f"it is not valid TOML: {_KEY.sub(_dotted, str(error))}"
    if match := re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", text):
        line = int(match[1] or content.rstrip(b"\n").count(b"\n") + 1)
        return Problem("E109", one_line(text[: match.start()], 200), f"{shown}:{line}")
    return Problem("E109", one_line(text, 200), shown)


def _dotted(match: re.Match[str]) -> str:
    """Write a key with dots; tomllib writes it as a tuple."""
    try:
        return f"'{'.'.join(map(str, ast.literal_eval(match[0])))}'"
    except (ValueError, SyntaxError):
        return match[0]


MAX_SECRET_BYTES = 64 * 1024  # of a secret; an endless file ends here
SECRETS = (("database", "url"), ("database", "listen_url"), ("http", "token"))


def read(ref: Ref, *, place: str | None = None, environ: Mapping[str, str] | None = None) -> str:
    """Return the value, or raise ConfigError E107 with the place that named it."""
    try:
        return find(ref, environ)
    except MissingReference as cause:
        text = f"{one_line(ref.shown, 200)} was not found: {cause}"
        raise ConfigError([Problem("E107", text, place)]) from None


def find(ref: Ref, environ: Mapping[str, str] | None = None) -> str:
    """Return the value, or raise MissingReference with the cause."""
    environ = os.environ if environ is None else environ
    if ref.scheme == "env":
        if ref.target not in environ:
            raise MissingReference(f"the environment has no variable {one_line(ref.target, 60)}")
        return environ[ref.target]
    if ref.scheme == "file":
        return _secret(Path(ref.target))
    if ref.scheme == "cred":
        directory = environ.get("CREDENTIALS_DIRECTORY")
        if not directory:
            text = "there are no systemd credentials here ($CREDENTIALS_DIRECTORY)"
            raise MissingReference(text)
        if not ref.target or "/" in ref.target or ref.target in {".", ".."}:
            raise MissingReference("this is not a valid name of a credential")
        return _secret(Path(directory) / ref.target)
    return ref.written


def unreadable(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Return E107 for each secret that cannot be read now, and E105 for each invalid URL."""
    problems = []
    for section, name in SECRETS:
        ref: Ref = getattr(getattr(settings, section), name)
        place = settings.origin_of(section, name).place
        try:
            value = find(ref, environ)
        except MissingReference as cause:
            text = f"[{section}] {name} is {one_line(ref.shown, 200)}, and {cause}"
            problems.append(Problem("E107", text, place))
            continue
        if section == "database":
            import psycopg
            from psycopg.conninfo import conninfo_to_dict

            try:
                conninfo_to_dict(value)
            except psycopg.ProgrammingError as error:  # trying again does not help
                mistake = one_line(redact(str(error).strip(), secrets_in(value)), 200)
                text = f"[database] {name} cannot be read: {mistake}"
                problems.append(Problem("E105", text, place, URL_NEXT))
    return problems


def _secret(path: Path) -> str:
    shown = one_line(str(path), 200)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise MissingReference(f"{shown} is not a regular file")
            content = file.read(MAX_SECRET_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MissingReference(f"{shown} cannot be read: {reason}") from None
    if len(content) > MAX_SECRET_BYTES:
        raise MissingReference(f"{shown} is larger than {MAX_SECRET_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MissingReference(f"{shown} is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")


_FILE = Path(".pgflowd", "dev.url")
_MAX_URL = 4096  # bytes; far above any URL


class DevAlreadyRunning(Exception):
    """Another `pgflowd dev` runs here."""


@contextmanager
def announce_url(root: Path, url: str) -> Iterator[None]:
    """Offer this URL to other terminals until the block is left."""
    path = root / _FILE
    path.parent.mkdir(exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise DevAlreadyRunning(str(root)) from None
        os.ftruncate(handle, 0)
        os.pwrite(handle, url.encode(), 0)
        yield
        with suppress(OSError):
            path.unlink()
    finally:
        os.close(handle)


def unset_libpq_variables() -> None:
    """Unset libpq's variables, which name another database than that of `pgflowd dev`."""
    for name in [name for name in os.environ if name.startswith("PG") and name.isalpha()]:
        del os.environ[name]


def development_url(config: str | None) -> str:
    """Return the URL of the `dev` that runs in the directory of this config file, or ""."""
    path = (Path(config).absolute().parent if config else Path.cwd()) / _FILE
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return ""
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:  # held: it runs
        return os.pread(handle, _MAX_URL, 0).decode()
    finally:
        os.close(handle)
    return ""
