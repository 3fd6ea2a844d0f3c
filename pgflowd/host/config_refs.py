"""
Reads the values of references: environment variables, files and systemd credentials.

A secret is read each time it is needed and never kept, so a rotated one works at the next
connect. A missing target is E107, with the cause. Files must be regular and small; one line break
at the end is not part of the value.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from pgflowd.core.redact import one_line, redact, secrets_in
from pgflowd.core.settings.keys import MissingReference
from pgflowd.core.settings.sections import Settings
from pgflowd.core.settings.values import URL_NEXT, Ref
from pgflowd.errors import ConfigError, Problem

MAX_BYTES = 64 * 1024  # of a secret; an endless file ends here
SECRETS = ("url", "listen_url")


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
        return _content(Path(ref.target))
    if ref.scheme == "cred":
        return _content(_credential(ref.target, environ))
    return ref.written


def unreadable(settings: Settings, environ: Mapping[str, str] | None = None) -> list[Problem]:
    """Return E107 for each secret that cannot be read now, and E105 for each invalid URL."""
    problems = []
    for name in SECRETS:
        ref: Ref = getattr(settings.database, name)
        place = settings.origin_of("database", name).place
        try:
            mistake = _url_mistake(find(ref, environ))
        except MissingReference as cause:
            text = f"[database] {name} is {one_line(ref.shown, 200)}, and {cause}"
            problems.append(Problem("E107", text, place))
            continue
        if mistake:
            text = f"[database] {name} cannot be read: {mistake}"
            problems.append(Problem("E105", text, place, URL_NEXT))
    try:
        find(settings.http.token, environ)
    except MissingReference as cause:
        text = f"[http] token is {one_line(settings.http.token.shown, 200)}, and {cause}"
        problems.append(Problem("E107", text, settings.origin_of("http", "token").place))
    return problems


def _url_mistake(url: str) -> str | None:
    """Return what is wrong with a URL according to libpq; trying again does not help."""
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        return one_line(redact(str(error).strip(), secrets_in(url)), 200)
    return None


def _credential(name: str, environ: Mapping[str, str]) -> Path:
    directory = environ.get("CREDENTIALS_DIRECTORY")
    if not directory:
        raise MissingReference("there are no systemd credentials here ($CREDENTIALS_DIRECTORY)")
    if not name or "/" in name or name in {".", ".."}:
        raise MissingReference("this is not a valid name of a credential")
    return Path(directory) / name


def _content(path: Path) -> str:
    shown = one_line(str(path), 200)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise MissingReference(f"{shown} is not a regular file")
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise MissingReference(f"{shown} cannot be read: {reason}") from None
    if len(content) > MAX_BYTES:
        raise MissingReference(f"{shown} is larger than {MAX_BYTES // 1024} KiB")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise MissingReference(f"{shown} is not UTF-8") from None
    return text.removesuffix("\n").removesuffix("\r")
