"""
The object that every command gets: the global flags, the settings, and methods that print.

A command takes it with `@pass_app`. Expensive work is done on first use, so `--help` reads no
file. `app.settings` loads the configuration and prints its warnings. `app.database_url` is read
at each call, so a rotated password works; its secrets are hidden in all later output. Results
go to standard output, everything else to standard error. A command that succeeds returns, one with
a negative result calls `app.exit(ExitCode.NO)`, one that refuses raises `CommandRefused`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from pgflowd.cli.terminal.screen import Screen, emit, screen_for
from pgflowd.core.documents import versioned
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.redact import one_line, redact, secrets_in

if TYPE_CHECKING:
    from pgflowd.core.settings.sections import Settings
    from pgflowd.errors import Problem


class CommandRefused(click.ClickException):
    """The command refuses; the text says what is missing, the exit code why."""

    def __init__(self, message: str, exit_code: ExitCode = ExitCode.REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]


class App:
    """The global flags of one invocation, and the settings and output that depend on them."""

    def __init__(self) -> None:
        self.config: str | None = None
        self.flag_database_url: str | None = None
        self.instance: str | None = None
        self.json = False
        self.color = "auto"
        self.quiet = False
        self.verbose = False
        self.secrets: set[str] = set()
        self.command_flags: dict[str, tuple[tuple[str, ...], str | None]] = {}  # that set a key

    @cached_property
    def settings(self) -> Settings:
        """The checked settings. ConfigError lists everything that is wrong."""
        from pgflowd.cli.problems import print_problems

        settings = self.read_settings()
        if settings.warnings and not self.quiet:
            print_problems(self, settings.warnings)
        return settings

    def read_settings(self, **more: Any) -> Settings:
        """The settings as they are written now, which is not kept; `more` is as `load` takes it."""
        from pgflowd.host.config import load

        return load(config=self.config, instance=self.instance, flags=self._flags, **more)

    def forget_settings(self) -> None:
        """Read the settings again at their next use."""
        self.__dict__.pop("settings", None)

    def check_settings(self) -> list[Problem]:
        """Return every problem that keeps a daemon from serving; keep the valid settings."""
        from pgflowd.host.config import load_with_problems

        settings, problems = load_with_problems(
            config=self.config, instance=self.instance, flags=self._flags, serving=True
        )
        self.__dict__["settings"] = settings
        return problems

    @property
    def _flags(self) -> dict[str, tuple[tuple[str, ...], str | None]]:
        return {
            "--database-url": (("database", "url"), self.flag_database_url),
            **self.command_flags,
        }

    @property
    def database_url(self) -> str:
        """
        The DSN, read now. An empty one means the database of `pgflowd dev` if that runs here,
        else the libpq environment. Never print it unredacted.
        """
        from pgflowd.host.config import development_url, read, unset_libpq_variables

        url = read(self.settings.database.url, place="[database] url")
        if not url and (url := development_url(self.settings.file)):
            unset_libpq_variables()
        self.secrets.update(secrets_in(url))
        return url

    @property
    def out(self) -> Screen:
        return screen_for(sys.stdout, self.color)

    @property
    def err(self) -> Screen:
        return screen_for(sys.stderr, self.color)

    def print(self, text: str = "", *, cursor: str = "") -> None:
        """Print a result; `cursor` is a sequence that moves the terminal's before."""
        emit(text, sys.stdout, is_painted=self.out.colour, cursor=cursor)

    def print_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.print(line)

    def note(self, text: str) -> None:
        """Print a remark for humans to standard error; `-q` and `--json` silence it."""
        if not (self.quiet or self.json):
            emit(self.err.folded(text), sys.stderr, is_painted=self.err.colour)

    def hint(self, commands: Sequence[tuple[str, str]]) -> None:
        """Print the commands that a human may need next, and why; silenced like a remark."""
        if not (self.quiet or self.json):
            lines = self.err.commands("next", self.with_activation(commands))
            emit("\n".join(lines), sys.stderr, is_painted=self.err.colour)

    def print_json(self, value: Any) -> None:
        """Print one JSON document, indented."""
        emit(json.dumps(value, indent=2), sys.stdout)

    def print_document(self, document: Any) -> None:
        """Print a JSON document, after the version of its format."""
        self.print_json(versioned(document))

    def print_result(self, text: str | Callable[[], object], document: Any) -> None:
        """Print the result of a command: the text, which may be printed by a function, or with
        `--json` the document."""
        if self.json:
            self.print_document(document)
        elif isinstance(text, str):
            self.print(text)
        else:
            text()

    def print_found(
        self, document: Any, is_found: object, show: Callable[[], object], nothing: str
    ) -> None:
        """Print a list: with `--json` its document, else `show` it, or remark that it is empty."""
        self.print_result(show if is_found else lambda: self.note(nothing), document)

    def print_json_line(self, document: Any) -> None:
        """Print a JSON document on one line, and flush it."""
        emit(json.dumps(versioned(document)), sys.stdout)

    def hide(self, text: str) -> str:
        """Return the text without secrets."""
        return redact(text, self.secrets)

    def with_activation(self, commands: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """The commands, after the one that puts `pgflowd` on the PATH, if that is needed."""
        activate = Path(sys.prefix, "bin", "activate")
        if shutil.which("pgflowd") or not activate.exists():
            return list(commands)
        return [(f". {self.shorten_paths(str(activate))}", "so that pgflowd is found"), *commands]

    def shorten_paths(self, text: str) -> str:
        """Return the text with paths below the current directory made relative to it."""
        try:
            here = os.path.join(Path.cwd(), "")  # noqa: PTH118 - with the slash at its end
        except OSError:
            return text
        if len(here) == 1:
            return text
        return re.sub(rf"(?<![\w./-]){re.escape(here)}", "", text)  # not within a longer path

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before a deletion. Without a terminal `--yes` is required."""
        if yes:
            return
        if self.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise CommandRefused(f"{one_line(question)} without a terminal this needs --yes")
        if not click.confirm(one_line(question), default=False, err=True):
            raise CommandRefused("nothing was changed")

    def exit(self, code: ExitCode) -> NoReturn:
        """End the command with this exit code, without an error message."""
        raise click.exceptions.Exit(int(code))


pass_app = click.make_pass_decorator(App)
