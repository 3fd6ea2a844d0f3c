"""
The types of the arguments and options of commands: runs, flows, tasks, durations, JSON.

Each type explains what is wrong with a word, and completes words from the database. Whether a
run or flow exists is checked when the command runs (`cli.lookup`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pgflowd.cli import known_words
from pgflowd.cli.connect import suggestions
from pgflowd.cli.lookup import (
    check_run_word,
    check_task_word,
    check_worker_word,
    flow_slugs,
)
from pgflowd.core.definition.options import MAX_SLOTS, TUNABLE, OptionKind
from pgflowd.core.lookup import LAST
from pgflowd.core.redact import one_line
from pgflowd.core.settings.values import needs_fault, sorted_needs
from pgflowd.core.text import did_you_mean

if TYPE_CHECKING:
    import psycopg

    ParamType = click.ParamType[Any]
else:
    ParamType = click.ParamType  # no generic class in older releases of click


F = TypeVar("F", bound=Callable[..., Any])

MAX_DURATION_S = 36500 * 86400.0
MAX_INPUT_CHARS = 64 * 1024 * 1024  # far above any real input; an endless stream ends here


class WordParam(ParamType):
    """A word that names something in the database, from where shells can complete it."""

    def __init__(
        self,
        name: str,
        suggest: Callable[[psycopg.Connection[Any]], list[str]],
        check: Callable[[str], object] | None = None,
        constants: Sequence[str] = (),
    ) -> None:
        self.name, self._suggest = name, suggest
        self._check, self._constants = check, constants

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if self._check is not None:
            self._check(value)  # before the command connects
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        items = []
        for line in [*self._constants, *suggestions(self._suggest, ctx)]:
            word, _, help = line.partition(" ")
            if word.startswith(incomplete):
                items.append(CompletionItem(word, help=help or None))
        return items


class PartParam(ParamType):
    """A word that names a part of what was named before, such as a step of a run."""

    def __init__(
        self,
        name: str,
        suggest: Callable[[psycopg.Connection[Any], Mapping[str, Any]], Iterable[str]],
    ) -> None:
        self.name, self._suggest = name, suggest

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # Behind an option without its value, which is what is completed, click leaves arguments.
        arguments = (each.name for each in ctx.command.params if isinstance(each, click.Argument))
        given = {**ctx.params, **dict(zip(arguments, ctx.args, strict=False))}
        words = suggestions(lambda conn: [*self._suggest(conn, given)], ctx)
        return begin_with(incomplete, dict.fromkeys(words))


def begin_with(begun: str, words: Iterable[str]) -> list[CompletionItem]:
    """Those of the words that a shell may suggest."""
    return [CompletionItem(word) for word in words if word.startswith(begun)]


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
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(
                f"'{one_line(value, 60)}': {error}; write for example 30s or 1h30m", param, ctx
            )
        if seconds > MAX_DURATION_S:  # no date is as far away as a number may say
            self.fail(f"'{one_line(value, 60)}' is more than 36500d", param, ctx)
        return seconds


class MomentParam(ParamType):
    """A moment as ISO 8601 has it; without an offset in the time zone of this machine."""

    name = "moment"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            self.fail(
                f"'{one_line(value, 60)}' is not a moment; write for example 2026-12-31T08:00"
                " or 2026-12-31T08:00Z",
                param,
                ctx,
            )


class MomentOrDurationParam(ParamType):
    """A moment, or a duration from now on."""

    name = "moment or duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime | float:
        if isinstance(value, datetime) or "-" in str(value):
            return MOMENT.convert(value, param, ctx)
        return DURATION.convert(value, param, ctx)


class LabelParam(ParamType):
    """A label: `NAME=VALUE`."""

    name = "label"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, text = value.partition("=")
        if not (name and equals):
            self.fail(f"'{one_line(value, 60)}' is not a label; write customer=42", param, ctx)
        return name, text


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


class NeedsParam(ParamType):
    """Words with commas between, such as gpu,80gb."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        needs = value.split(",") if isinstance(value, str) else value
        if needs and (fault := needs_fault(needs)):
            self.fail(f"{value!r}: {fault}, as in gpu,80gb", param, ctx)
        return sorted_needs(needs)


class OptionValueParam(ParamType):
    """An option of a flow or step and its value, such as timeout=30; None for `unset`."""

    name = "option"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        name, equals, text = str(value).partition("=")
        option = TUNABLE.get(name)
        if not equals or option is None:
            hint = (
                f"write its value, as {name}=30, or {name}=unset"
                if option is not None
                else did_you_mean(name, TUNABLE)
                or f"write one of {', '.join(TUNABLE)}, as timeout=30"
            )
            self.fail(f"{value!r} sets no option; {hint}", param, ctx)
        if text == "unset":
            return name, None
        if option.words:
            if text not in option.words:
                self.fail(f"{value!r}: {name} is {' or '.join(option.words)}", param, ctx)
            return name, text
        least, most = (1, MAX_SLOTS) if not option.is_number else (option.least, option.most)
        if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) <= most):
            unit = " of seconds" if option.kind is OptionKind.SECONDS else ""
            rule = f"a whole number{unit} from {least} to {most}, or unset"
            self.fail(f"{value!r}: {name} is {rule}", param, ctx)
        return name, int(text)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return begin_with(incomplete, (f"{name}=" for name in TUNABLE))


RUN = WordParam("run", known_words.recent_runs, check_run_word, [f"{LAST} the newest run"])
FLOW = WordParam("flow", flow_slugs)
SCHEDULE = WordParam("name", known_words.schedules)
DAEMON = WordParam("daemon", known_words.daemons)
WORKER = WordParam("worker id", known_words.workers, check_worker_word)
TASK = WordParam("task", known_words.stalled_tasks, check_task_word)
SETTING = WordParam("setting", known_words.settings)
STEP = PartParam("step", known_words.steps)
APPROVAL_STEP = PartParam("step", known_words.approvals)
SIGNAL_NAME = PartParam("name", known_words.signal_names)
OPEN_TASK = WordParam("task", known_words.open_tasks, check_task_word)
WAITING_TASK = WordParam("task", known_words.waiting_tasks, check_task_word)
DURATION, JSON, NEEDS = DurationParam(), JsonParam(), NeedsParam()
OPTION_VALUE = OptionValueParam()
MOMENT, MOMENT_OR_DURATION, LABEL = MomentParam(), MomentOrDurationParam(), LabelParam()
LIMIT_OPTION = click.option(
    "--limit",
    type=NumberParam(1, 10_000),
    default=20,
    metavar="N",
    help="At most N; by default 20.",
)
REASON_OPTION = click.option("--reason", metavar="TEXT", help="Why; it is stored with the action.")
LABELS: dict[str, Any] = {
    "type": LABEL, "metavar": "K=V", "multiple": True, "help": "A label; may be repeated."
}  # fmt: skip
label_option = click.option("--label", "labels", **LABELS)


def time_options(command: F) -> F:
    """When a run begins, and when it expires."""
    for option in (
        click.option("--expires", type=MOMENT_OR_DURATION, metavar="T|DUR",
                     help="End it then, wherever it is."),
        click.option("--delay", type=DURATION, metavar="DUR", help="Begin it after this time."),
        click.option("--at", type=MOMENT, metavar="T", help="Begin it then: 2026-12-31T08:00."),
    ):  # fmt: skip
        command = option(command)
    return command
