"""
The types of the arguments and options of commands: runs, flows, tasks, durations, JSON.

Each type explains what is wrong with a word, and completes words from the database. Whether a
run or flow exists is checked when the command runs (`cli.connect`).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from pgflowd.core.redact import one_line

if TYPE_CHECKING:
    import psycopg

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # no generic class in older releases of click


MAX_INPUT_CHARS = 64 * 1024 * 1024  # far above any real input; an endless stream ends here


class RunParam(ParamType):
    """A run: an id, its last digits, or `@last`."""

    name = "run"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from pgflowd.cli.connect import check_run_word

        check_run_word(value)  # before the command connects
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from pgflowd.cli.connect import LAST, suggestions

        found = suggestions(_recent_runs, ctx)
        words = [CompletionItem(LAST, help="the newest run"), *map(_with_help, found)]
        return [word for word in words if word.value.startswith(incomplete)]


class FlowParam(ParamType):
    """A flow's slug."""

    name = "flow"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from pgflowd.cli.connect import flow_slugs, suggestions

        slugs = suggestions(flow_slugs, ctx)
        return [CompletionItem(slug) for slug in slugs if slug.startswith(incomplete)]


class TaskParam(ParamType):
    """A stalled task: RUN/STEP#INDEX."""

    name = "task"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from pgflowd.cli.connect import check_task_word

        check_task_word(value)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from pgflowd.cli.connect import suggestions

        found = suggestions(_stalled, ctx)
        return [CompletionItem(task) for task in found if task.startswith(incomplete)]


class DurationParam(ParamType):
    """A duration with a unit; becomes float seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from pgflowd.core.settings.values import parse_duration

        if isinstance(value, float):
            return value
        try:
            return parse_duration(value)
        except ValueError as error:
            self.fail(
                f"'{one_line(value, 60)}': {error}; write for example 30s or 1h30m", param, ctx
            )


class NumberParam(click.IntRange):
    """A whole number within limits; the error names them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        limits = f"from {self.min} to {self.max}" if self.max else f"of {self.min} or more"
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            text = f"'{one_line(str(value), 60)}' is not a whole number {limits}"
            raise click.BadParameter(text, ctx, param) from None


class JsonParam(ParamType):
    """JSON: itself, `-` for standard input, or `@FILE`."""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        text, place = self._text(value, param, ctx)
        try:
            return json.loads(text, parse_constant=_refuse_constant)
        except RecursionError:
            self.fail(f"{place or 'it'} is nested too deeply", param, ctx)
        except ValueError as error:
            hint = "" if place else _quoting_hint(value)
            where = f"{place} " if place else ""
            self.fail(f"{where}is not JSON: {error}{hint}", param, ctx)

    def _text(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        try:
            if value == "-":
                return _bounded(sys.stdin), "standard input"
            if value.startswith("@"):
                with Path(value[1:]).open(encoding="utf-8") as file:
                    return _bounded(file), value[1:]
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            if isinstance(error, UnicodeDecodeError):
                reason = "it is not UTF-8"
            self.fail(f"{one_line(value, 200)} cannot be read: {reason}", param, ctx)
        return value, ""


RUN, FLOW, TASK = RunParam(), FlowParam(), TaskParam()
DURATION, JSON = DurationParam(), JsonParam()


def _bounded(stream: IO[str] | None) -> str:
    """The whole text of a stream, unless it is too long."""
    if stream is None:
        raise ValueError("it is closed")
    text = stream.read(MAX_INPUT_CHARS + 1)
    if len(text) > MAX_INPUT_CHARS:
        raise ValueError(f"it is larger than {MAX_INPUT_CHARS // 2**20} MiB")
    return text


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _quoting_hint(value: str) -> str:
    """A hint about a shell's quotes, if those are the likely cause."""
    looks_bare = value[:1] not in '[{"' or ('"' not in value and len(value) > 2)
    return "; in a shell, put it in single quotes: '{\"key\": 1}'" if looks_bare else ""


def _with_help(word: str) -> CompletionItem:
    digits, _, rest = word.partition(" ")
    return CompletionItem(digits, help=rest)


def _recent_runs(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.core.text import short_id
    from pgflowd.db.query import execute
    from pgflowd.db.runs import list_runs

    found = execute(conn, list_runs(most=50))
    return [f"{short_id(row.run_id)} {row.flow_slug} {row.status}" for row in found]


def _stalled(conn: psycopg.Connection[Any]) -> list[str]:
    from pgflowd.cli.connect import task_name
    from pgflowd.db.query import execute
    from pgflowd.db.stalled import stalled_tasks

    found = execute(conn, stalled_tasks(60.0))
    return [task_name(task.run_id, task.step_slug, task.task_index) for task in found]
