"""
The types of the arguments and options of commands: runs, flows, tasks, durations, JSON.

Each type explains what is wrong with a word. A `NamedWord` names something, and shells complete it
from the database; whether it exists is checked when the command runs (`cli.database`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from pgflowd import db
from pgflowd.cli.app import App
from pgflowd.cli.database import check_task_word, execute, find_run
from pgflowd.core.definition.options import MAX_SLOTS, TUNABLE, OptionKind
from pgflowd.core.lookup import LAST, check_run_word, check_worker_word
from pgflowd.core.redact import one_line
from pgflowd.core.settings.values import needs_fault, parse_duration, sorted_needs
from pgflowd.core.statuses import TaskStatus
from pgflowd.core.text import did_you_mean, short_id, task_name

if TYPE_CHECKING:
    import psycopg

    from pgflowd.core.documents.run_tasks import OpenTask

    ParamType = click.ParamType[Any]
    Suggest = Callable[[psycopg.Connection[Any], Mapping[str, Any]], Iterable[Any]]
else:
    ParamType = click.ParamType  # no generic class in older releases of click


F = TypeVar("F", bound=Callable[..., Any])

MAX_DURATION_S = 36500 * 86400.0
MAX_INPUT_CHARS = 64 * 1024 * 1024  # far above any real input; an endless stream ends here


class NamedWord(ParamType):
    """
    A word that names something in the database. `suggest` reads rows for shells, with the words
    that are given before, and `line` makes a line of each; what follows a word there, after a
    blank, explains it. `check` refuses a word that can name nothing, before the command connects.
    """

    def __init__(
        self,
        name: str,
        suggest: Suggest,
        line: Callable[[Any], str | None] = str,
        *,
        check: Callable[[str], object] = str,
        constants: Sequence[str] = (),
    ) -> None:
        self.name, self._suggest, self._line = name, suggest, line
        self._check, self._constants = check, constants

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        self._check(value)
        return value

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        # Behind an option without its value, which is what is completed, click leaves arguments.
        arguments = (each.name for each in ctx.command.params if isinstance(each, click.Argument))
        given = {**ctx.params, **dict(zip(arguments, ctx.args, strict=False))}
        lines = [*self._constants, *self._suggestions(ctx, given)]
        pairs = dict.fromkeys(line.partition(" ")[::2] for line in lines)
        return begin_with(incomplete, pairs)

    def _suggestions(self, ctx: click.Context, given: Mapping[str, Any]) -> list[str]:
        """What the database knows; nothing if it does not answer soon. What has control
        characters, as names of signals may, would tear the list and reach the terminal."""
        app = ctx.find_object(App) or App()
        for param in ("config", "flag_database_url", "instance"):
            if ctx.params.get(param) and not getattr(app, param):
                setattr(app, param, ctx.params[param])
        app.quiet = True
        try:
            limits = db.connection.Limits(connect_s=2.0, statement_s=1.0, lock_s=1.0)
            name = "pgflowd completion"
            with db.connection.connect(app.database_url, name=name, limits=limits) as conn:
                lines = list(filter(None, map(self._line, self._suggest(conn, given))))
            return [line for line in lines if line.isprintable()]
        except Exception:
            return []


def begin_with(begun: str, words: Iterable[str | tuple[str, str]]) -> list[CompletionItem]:
    """Those of the words that a shell may suggest, each alone or with its explanation."""
    pairs = ((each, "") if isinstance(each, str) else each for each in words)
    return [
        CompletionItem(word, help=help or None) for word, help in pairs if word.startswith(begun)
    ]


def completing(
    words: Callable[[], Iterable[str | tuple[str, str]]],
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """The `shell_complete` of a parameter that takes one of these words."""
    return lambda _ctx, _param, begun: begin_with(begun, words())


def _workers(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> Iterator[str]:
    for daemon in execute(conn, db.daemons.list_daemons()):
        for flow in daemon.flows:
            if worker := flow.get("worker_id"):
                yield f"{short_id(worker)} {flow.get('slug')} of {daemon.place}"


def _steps(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> list[str]:
    """The steps of the run or flow that is given."""
    if "run" in given:
        found = execute(conn, db.runs.run_steps(find_run(conn, given["run"])))
        return [step.step_slug for step in found]
    shape = execute(conn, db.flows.flow_shape(given["flow"])) or {}
    return [step["slug"] for step in shape["steps"]]


def _waits(conn: psycopg.Connection[Any], given: Mapping[str, Any]) -> list[OpenTask]:
    """The tasks of the run that wait."""
    return execute(conn, db.waits.waits_of(find_run(conn, given["run"]), 100))


def _refused(word: object, fault: str) -> click.BadParameter:
    return click.BadParameter(f"'{one_line(str(word), 60)}'{fault}")


def duration_s(word: str) -> float:
    """A duration with a unit, in seconds."""
    try:
        seconds = parse_duration(word)
    except ValueError as error:
        raise _refused(word, f": {error}; write for example 30s or 1h30m") from None
    if seconds > MAX_DURATION_S:  # no date is as far away as a number may say
        raise _refused(word, " is more than 36500d")
    return seconds


def moment(word: str) -> datetime:
    """A moment as ISO 8601 has it; without an offset in the time zone of this machine."""
    try:
        return datetime.fromisoformat(word).astimezone()
    except (ValueError, OverflowError):
        example = "write for example 2026-12-31T08:00 or 2026-12-31T08:00Z"
        raise _refused(word, f" is not a moment; {example}") from None


def moment_or_duration(word: str) -> datetime | float:
    """A moment, or a duration from now on in seconds."""
    return moment(word) if "-" in word else duration_s(word)


def label(word: str) -> tuple[str, str]:
    """A label: `NAME=VALUE`."""
    name, equals, text = word.partition("=")
    if not (name and equals):
        raise _refused(word, " is not a label; write customer=42")
    return name, text


class NumberParam(click.IntRange):
    """A whole number within limits; the error names them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        limits = f"from {self.min} to {self.max}" if self.max else f"of {self.min} or more"
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            raise _refused(value, f" is not a whole number {limits}") from None


def json_value(word: str) -> Any:
    """JSON: itself, `-` for standard input, or `@FILE`."""
    text, place = word, ""
    try:
        if word == "-":
            text, place = _bounded(sys.stdin), "standard input"
        elif word.startswith("@"):
            place = word[1:]
            with Path(place).open(encoding="utf-8") as file:
                text = _bounded(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        text = f"{one_line(word, 200)} cannot be read: {reason}"
        raise click.BadParameter(text) from None
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise click.BadParameter(f"{place or 'it'} is nested too deeply") from None
    except ValueError as error:
        hint = ""  # about a shell's quotes, if those are the likely cause
        if not place and (word[:1] not in '[{"' or ('"' not in word and len(word) > 2)):
            hint = "; in a shell, put it in single quotes: '{\"key\": 1}'"
        raise click.BadParameter(f"{place} is not JSON: {error}{hint}".lstrip()) from None


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


def caps(word: str | Sequence[str]) -> Any:
    """Words with commas between, such as gpu,80gb; none by default."""
    found = word.split(",") if isinstance(word, str) else word
    if found and (fault := needs_fault(found)):
        raise click.BadParameter(f"{word!r}: {fault}, as in gpu,80gb")
    return sorted_needs(found)


def option_value(word: str) -> tuple[str, Any]:
    """An option of a flow or step and its value, such as timeout=30; None for `unset`."""
    name, equals, text = word.partition("=")
    option = TUNABLE.get(name)
    if not equals or option is None:
        hint = (
            f"write its value, as {name}=30, or {name}=unset"
            if option is not None
            else did_you_mean(name, TUNABLE) or f"write one of {', '.join(TUNABLE)}, as timeout=30"
        )
        raise click.BadParameter(f"{word!r} sets no option; {hint}")
    if text == "unset":
        return name, None
    if option.words:
        if text not in option.words:
            raise click.BadParameter(f"{word!r}: {name} is {' or '.join(option.words)}")
        return name, text
    least, most = (1, MAX_SLOTS) if not option.is_number else (option.least, option.most)
    if not (text.isascii() and text.isdecimal() and least <= int(text[:20]) <= most):
        unit = " of seconds" if option.kind is OptionKind.SECONDS else ""
        rule = f"a whole number{unit} from {least} to {most}, or unset"
        raise click.BadParameter(f"{word!r}: {name} is {rule}")
    return name, int(text)


RUN = NamedWord(
    "run",
    lambda conn, _: execute(conn, db.runs.list_runs(most=50)),
    lambda run: f"{short_id(run.run_id)} {run.flow_slug} {run.status}",
    check=check_run_word,
    constants=[f"{LAST} the newest run"],
)
FLOW = NamedWord("flow", lambda conn, _: db.run_details.flow_slugs(conn))
SCHEDULE = NamedWord(
    "name",
    lambda conn, _: execute(conn, db.waits.list_schedules()),
    lambda each: f"{each.name} {each.when}",
)
DAEMON = NamedWord(
    "daemon",
    lambda conn, _: execute(conn, db.daemons.list_daemons()),
    lambda each: f"{each.place} {each.state}",
)
WORKER = NamedWord("worker id", _workers, check=check_worker_word)
SETTING = NamedWord(
    "setting",
    lambda conn, _: execute(conn, db.daemons.list_settings()),
    lambda each: f"{each.name} {each.means}",
)
STEP = NamedWord("step", _steps)
APPROVAL_STEP = NamedWord("step", _waits, lambda task: task.step_slug if task.is_approval else "")
SIGNAL_NAME = NamedWord("name", _waits, lambda task: task.name)
TASK = NamedWord(
    "task",
    lambda conn, _: execute(conn, db.waits.stalled_tasks(60.0)),
    lambda task: task_name(*task.key),
    check=check_task_word,
)
OPEN_TASK = NamedWord(
    "task",
    lambda conn, _: execute(conn, db.waits.list_tasks(most=50)),
    lambda task: f"{task_name(*task.key)} {task.flow_slug} {task.status}",
    check=check_task_word,
)
WAITING_TASK = NamedWord(
    "task",
    lambda conn, _: execute(conn, db.waits.list_tasks(statuses=[TaskStatus.WAITING], most=50)),
    lambda task: f"{task_name(*task.key)} {one_line(task.waits_for, 60)}",
    check=check_task_word,
)

run_argument = click.argument("run", metavar="RUN", type=RUN)
runs_argument = click.argument("run", metavar="RUN...", type=RUN, nargs=-1, required=True)
flow_argument = click.argument("flow", metavar="FLOW", type=FLOW)
LIMIT_OPTION = click.option(
    "--limit", type=NumberParam(1, 10_000), default=20, metavar="N",
    help="At most N; by default 20.",
)  # fmt: skip
REASON_OPTION = click.option("--reason", metavar="TEXT", help="Why; it is stored with the action.")
YES_OPTION = click.option("--yes", is_flag=True, help="Do not ask.")
LABELS: dict[str, Any] = {
    "type": label, "metavar": "K=V", "multiple": True, "help": "A label; may be repeated."
}  # fmt: skip
label_option = click.option("--label", "labels", **LABELS)


def status_option(statuses: Iterable[str], more: str = "") -> Callable[[F], F]:
    """Choose by these statuses."""
    names = [str(each) for each in statuses]
    about = f"{', '.join(names)}; may be repeated{more}."
    choice = click.Choice(names)
    return click.option(
        "--status", "statuses", type=choice, multiple=True, metavar="STATUS", help=about
    )


def options(*given: Callable[[Any], Any]) -> Callable[[F], F]:
    """Several options as one decorator."""
    return lambda command: reduce(lambda inner, option: option(inner), reversed(given), command)


# when a run begins, and when it expires
time_options = options(
    click.option("--at", type=moment, metavar="T", help="Begin it then: 2026-12-31T08:00."),
    click.option("--delay", type=duration_s, metavar="DUR", help="Begin it after this time."),
    click.option(
        "--expires", type=moment_or_duration, metavar="T|DUR", help="End it then, wherever it is."
    ),
)
