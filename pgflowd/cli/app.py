"""
App: what every command is given: the global flags, the settings, and ways to speak.

A command takes it with `@pass_app`. Everything that costs time is done when first asked for,
so `--help` reads no file. `app.settings` loads the configuration (and prints its warnings);
`app.database_url` is read at each call, so a rotated password works; what it holds is hidden
from everything printed later. Results go to standard output, all else to standard error.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pgflowd.cli.exits import CommandRefused, ExitCode
from pgflowd.cli.terminal.screen import Screen, TableCell, emit, screen_for
from pgflowd.core.redact import one_line, redact, secrets_in

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings
    from pgflowd.errors import Problem


class App:
    """The global flags of one invocation and what follows from them."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.flag_database_url: str | None = None
        self.instance: str | None = None
        self.json = False
        self.color = "auto"
        self.quiet = False
        self.verbose = False
        self.secrets: set[str] = set()

    @cached_property
    def settings(self) -> Settings:
        """The checked settings; raises ConfigError with all that is wrong."""
        from pgflowd.cli.problems import complain
        from pgflowd.host.config import load

        settings = load(config=self.config, instance=self.instance, flags=self._flags)
        if settings.warnings and not self.quiet:
            complain(self, settings.warnings)
        return settings

    def forget_settings(self) -> None:
        """Read them again when they are asked for again."""
        self.__dict__.pop("settings", None)

    def check_settings(self) -> list[Problem]:
        """Return all that keeps a daemon from serving with them; go on with what is right."""
        from pgflowd.host.config import load_with_problems

        settings, problems = load_with_problems(
            config=self.config, instance=self.instance, flags=self._flags, serving=True
        )
        self.__dict__["settings"] = settings
        return problems

    @property
    def _flags(self) -> dict[str, tuple[tuple[str, ...], str | None]]:
        return {"--database-url": (("database", "url"), self.flag_database_url)}

    @property
    def database_url(self) -> str:
        """
        The DSN, read now. Empty means the database of `pgflowd dev` while that runs here, and
        the libpq environment else. Never print it unredacted.
        """
        from pgflowd.host.config_refs import read
        from pgflowd.host.dev_lock import development_url, forget_libpq

        url = read(self.settings.database.url, place="[database] url")
        if not url and (url := development_url(self.settings.file)):
            forget_libpq()
        self.secrets.update(secrets_in(url))
        return url

    @property
    def out(self) -> Screen:
        return screen_for(sys.stdout, self.color)

    @property
    def err(self) -> Screen:
        return screen_for(sys.stderr, self.color)

    def print(self, text: str = "") -> None:
        """Print a result."""
        emit(text, sys.stdout)

    def note(self, text: str) -> None:
        """Tell a human something on the side; `-q` and `--json` silence it."""
        if not (self.quiet or self.json):
            emit(self.err.folded(text), sys.stderr)

    def hint(self, commands: Sequence[tuple[str, str]]) -> None:
        """Tell a human which commands may come next, and why."""
        if not (self.quiet or self.json):
            emit("\n".join(self.err.commands("next", self.with_activation(commands))), sys.stderr)

    def print_json(self, value: Any) -> None:
        """Print one JSON document, for humans to read as well."""
        emit(json.dumps(value, indent=2, default=_as_json), sys.stdout)

    def print_json_line(self, value: Any) -> None:
        """Print one object on one line, and let the reader have it now."""
        emit(json.dumps(value, default=_as_json), sys.stdout)

    def print_table(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[str | TableCell]],
        *,
        right: Collection[str] = (),
        losing: Iterable[str] = (),
        cutting: bool = False,
    ) -> None:
        """Print a table; see `Screen.table`."""
        self.print(self.out.table(titles, rows, right=right, losing=losing, cutting=cutting))

    def hide(self, text: str) -> str:
        """Return the text without secrets."""
        return redact(text, self.secrets)

    def with_activation(self, commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Commands of ours that a shell is to run, after the one that lets it find them."""
        activate = Path(sys.prefix, "bin", "activate")
        if shutil.which("pgflowd") or not activate.exists():
            return list(commands)
        return [(f". {self.shorten_paths(str(activate))}", "so that pgflowd is found"), *commands]

    def shorten_paths(self, text: str) -> str:
        """Return the text with files below the current directory named as seen from here."""
        try:
            here = os.path.join(Path.cwd(), "")  # noqa: PTH118 - with the slash at its end
        except OSError:
            return text
        if len(here) == 1:
            return text
        return re.sub(rf"(?<![\w./-]){re.escape(here)}", "", text)  # not within a longer path

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is deleted. Without a terminal `--yes` must have been given."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandRefused(
                f"{one_line(question)} this needs --yes here, where nobody can be asked"
            )
        if not click.confirm(one_line(question), default=False, err=True):
            raise CommandRefused("nothing was changed")

    def exit(self, code: ExitCode) -> NoReturn:
        """End the command with an exit code that is no error."""
        raise click.exceptions.Exit(int(code))


pass_app = click.make_pass_decorator(App)


def _as_json(value: object) -> object:
    """How what JSON lacks is written: times in ISO 8601 and UTC, durations in seconds."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)
