"""
Makes commands from the rows of `core.verbs`: their options, their help, and what they print.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from pgflowd import db
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.database import database, perform
from pgflowd.cli.groups import Command
from pgflowd.cli.params import NamedWord, caps, duration_s, json_value
from pgflowd.core.verbs import Argument, Kind, Verb
from pgflowd.errors import NotFound, PgflowdError

Unknown = Callable[[Any, str], PgflowdError]  # the error about a name that a database does not have
_KINDS: Mapping[Kind, dict[str, Any]] = {
    Kind.FLAG: {"is_flag": True},
    Kind.TEXT: {"metavar": "TEXT"},
    Kind.NUMBER: {"type": int, "metavar": "N"},
    Kind.DURATION: {"type": duration_s, "metavar": "DUR"},
    Kind.WORDS: {"type": caps, "metavar": "A,B", "default": ()},
    Kind.JSON: {"type": json_value},
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
    own = [_parameter(each) for each in verb.arguments if each.help or each.is_required]
    examples = "\n         ".join(verb.examples)
    return Command(
        verb.name,
        callback=pass_app(act),
        params=[*before, *own, *after],
        help=f"{verb.help}\n\n\b\nExample: {examples}",
        prints=prints,
    )


def _parameter(argument: Argument) -> click.Parameter:
    """An argument of a verb as one of a command."""
    kind = _KINDS[argument.kind]
    if argument.is_required:
        metavar = argument.name.upper() + ("|-|@FILE" if argument.kind is Kind.JSON else "")
        return click.Argument([argument.name], **{**kind, "metavar": metavar})
    return click.Option([argument.flag, argument.name], help=argument.help, **kind)


def changing(verb: Verb[Any], key: str, word: NamedWord, unknown: Unknown, prints: Any) -> Command:
    """The command of a verb on a flow or a schedule, whose name has this key in its document."""

    def act(app: App, /, **given: Any) -> None:
        name = given.pop(key)
        was_changed = perform_on(app, verb, name, unknown, **given)
        done = verb.done if was_changed else verb.is_so
        text = f"{verb.target.name.lower()} {name} {done}"
        app.print_result(text, {key: name, "changed": was_changed})

    argument = click.Argument([key], metavar=key.upper(), type=word)
    return command_of(verb, act, [argument], prints=prints)


def perform_on(app: App, verb: Verb[Any], name: str, unknown: Unknown, **given: Any) -> Any:
    """Perform a verb on a flow or a schedule that must exist."""
    with database(app) as conn:
        try:
            return perform(conn, db.operations.perform(verb, name, **given))
        except NotFound as error:
            raise unknown(conn, name) from error
