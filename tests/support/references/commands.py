"""The page of commands, from their help."""

from __future__ import annotations

import inspect

import click

from pgflowd.cli.groups import Command
from pgflowd.cli.main import cli
from support.references.markdown import MADE, code, item, page, paragraph, prose, table

_ABOUT = f"""\
`pgflowd COMMAND -h` says what each option means, and more, with examples. [For
programs](programs.md) has the words of arguments, such as RUN and DUR, and the exit codes;
`pgflowd docs --schema runs-list` prints the JSON Schema of what `pgflowd runs list --json`
prints, and so on. {MADE}"""
_TITLES = ("command", "does", "options")
_EVERYWHERE = "These work before and after every command:"


def commands_page() -> str:
    context = click.Context(cli, info_name="pgflowd", **cli.context_settings)
    commands = _below(cli, context)
    groups = [each for each in commands if isinstance(each, click.Group)]
    own = [each for each in cli.params if isinstance(each, click.Option)]
    parts = [
        paragraph(_ABOUT),
        "## Options of every command",
        paragraph(_EVERYWHERE),
        "\n".join(item(f"{_called(each)}: {each.help}") for each in own),
        "## All commands",
        _table(commands, context),
    ]
    for group in groups:
        inner = click.Context(group, info_name=group.name, parent=context)
        about = inspect.cleandoc(group.help or "").partition("\n\n\b")[0]
        parts += [f"## {group.name}", paragraph(about), _table(_below(group, inner), inner)]
    return page("Commands", *parts)


def _below(group: click.Group, context: click.Context) -> list[Command]:
    found = [group.get_command(context, name) for name in group.list_commands(context)]
    return [each for each in found if isinstance(each, Command)]


def _table(commands: list[Command], context: click.Context) -> str:
    return table(
        _TITLES,
        [
            [_name(each, context), prose(_first(each)), ", ".join(map(_called, _options(each)))]
            for each in commands
        ],
    )


def _name(command: Command, context: click.Context) -> str:
    """A command with its arguments; a group leads to its own part of the page."""
    if isinstance(command, click.Group):
        return f"[{command.name}](#{command.name})"
    pieces = command.collect_usage_pieces(click.Context(command, parent=context))
    return code(" ".join([str(command.name), *_piped(" ".join(pieces[1:])).split()]))


def _options(command: Command) -> list[click.Option]:
    return [
        each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden and each not in command.global_options
    ]


def _called(option: click.Option) -> str:
    value = "" if option.is_flag else f" {_piped(_metavar(option))}"
    return code(f"{', '.join(option.opts)}{value}")


def _metavar(option: click.Option) -> str:
    if option.metavar is None and isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or option.type.name.upper()


def _piped(text: str) -> str:
    """A choice of words, as a cell of a table can have it."""
    return text.replace(" | ", "/").replace("|", "/")


def _first(command: Command) -> str:
    return inspect.cleandoc(command.help or "").partition("\n\n")[0]
