"""
Makes commands from the rows of `core.verbs`: their options, their help, and what they print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.connect import database
from pgflowd.cli.groups import Command
from pgflowd.cli.params import DURATION, JSON, NEEDS, ParamType
from pgflowd.core.verbs import Argument, Kind, Verb
from pgflowd.errors import NotFound, PgflowdError

Unknown = Callable[[Any, str], PgflowdError]  # the error about a name that a database does not have
_OPTIONS: Mapping[Kind, dict[str, Any]] = {
    Kind.FLAG: {"is_flag": True},
    Kind.TEXT: {"metavar": "TEXT"},
    Kind.NUMBER: {"type": int, "metavar": "N"},
    Kind.DURATION: {"type": DURATION, "metavar": "DUR"},
    Kind.WORDS: {"type": NEEDS, "metavar": "A,B", "default": ()},
}


def command_of(
    verb: Verb[Any],
    act: Callable[..., None],
    before: Sequence[click.Parameter],
    after: Sequence[click.Parameter] = (),
    *,
    prints: Any,
) -> Command:
    """
    The command of a verb: `act` gets the app, and each parameter by its name. It `prints` a
    document of this type.
    """
    return Command(
        verb.name,
        callback=pass_app(act),
        params=[*before, *options_of(verb), *after],
        help=_help(verb),
        prints=prints,
    )


def options_of(verb: Verb[Any]) -> list[click.Parameter]:
    """The arguments of a verb as those of a command."""
    return [_parameter(each) for each in verb.arguments if each.help or each.kind is Kind.JSON]


def _parameter(argument: Argument) -> click.Parameter:
    if argument.kind is Kind.JSON:
        metavar = f"{argument.name.upper()}|-|@FILE"
        return click.Argument([argument.name], metavar=metavar, type=JSON)
    names = [argument.flag, argument.name]
    return click.Option(names, help=argument.help, **_OPTIONS[argument.kind])


def _help(verb: Verb[Any]) -> str:
    examples = "\n         ".join(verb.examples)
    return f"{verb.help}\n\n\b\nExample: {examples}"


def changing(verb: Verb[Any], key: str, word: ParamType, unknown: Unknown, prints: Any) -> Command:
    """The command of a verb on a flow or a schedule, whose name has this key in its document."""
    noun = verb.target.name.lower()

    def act(app: App, /, **given: Any) -> None:
        name = given.pop(key)
        was_changed = perform_on(app, verb, name, unknown, **given)
        text = f"{noun} {name} {verb.done if was_changed else verb.is_so}"
        app.print_result(text, {key: name, "changed": was_changed})

    argument = click.Argument([key], metavar=key.upper(), type=word)
    return command_of(verb, act, [argument], prints=prints)


def perform_on(app: App, verb: Verb[Any], name: str, unknown: Unknown, **given: Any) -> Any:
    """Perform a verb on a flow or a schedule that must exist."""
    from pgflowd.db import operations, performing

    with database(app) as conn:
        try:
            return performing.run_sync(conn, operations.perform(verb, name, **given))
        except NotFound as error:
            raise unknown(conn, name) from error
