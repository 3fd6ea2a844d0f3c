"""The page of commands, from their help."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import click

from pgflowd.cli.groups import Command
from pgflowd.cli.main import cli
from support.references.markdown import MADE, WIDTH, code, item, page, paragraph

_ABOUT = f"""\
Each command has its help with `-h`, which is what stands here. [For programs](programs.md) has
the words of arguments, such as RUN and DUR, and the exit codes; `pgflowd docs --schema runs-list`
prints the JSON Schema of what `pgflowd runs list --json` prints, and so on. {MADE}"""
_EVERYWHERE = "These work before and after every command:"


def commands_page() -> str:
    context = click.Context(cli, info_name="pgflowd")
    own = [_option(each) for each in cli.params if isinstance(each, click.Option)]
    parts = [
        paragraph(_ABOUT),
        "## All commands",
        "\n".join(
            item(f"[{each.name}](#{each.name}): {each.help}") for each in cli.entries.values()
        ),
        "## Options of every command",
        paragraph(_EVERYWHERE),
        "\n".join(own),
    ]
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        parts += _section(command, context, 2)
    return page("Commands", *parts)


def _section(command: click.Command, parent: click.Context, level: int) -> Iterator[str]:
    """The parts of a command, and of those below it."""
    context = click.Context(command, info_name=command.name, parent=parent)
    words = context.command_path.removeprefix("pgflowd ")
    yield f"{'#' * level} {words}"
    yield _usage(command, context)
    text, examples = _help(command)
    yield from map(paragraph, text)
    assert isinstance(command, Command)
    options = [
        each
        for each in command.params
        if isinstance(each, click.Option) and not each.hidden and each not in command.global_options
    ]
    if options:
        yield "\n".join(map(_option, options))
    if examples:
        yield "\n".join(["```console", *(f"$ {line}" for line in examples), "```"])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _section(inner, context, level + 1)


def _usage(command: click.Command, context: click.Context) -> str:
    pieces = " ".join(command.collect_usage_pieces(context))
    line = f"{context.command_path} {pieces}"
    assert len(line) <= WIDTH
    return f"```text\n{line}\n```"


def _help(command: click.Command) -> tuple[list[str], list[str]]:
    """The paragraphs of the help, and the lines of its example."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    texts = [each for each in paragraphs if not each.startswith("\b")]
    (example,) = [each for each in paragraphs if each.startswith("\b")] or [""]
    lines = example.removeprefix("\b\n").removeprefix("Example:").splitlines()
    return texts, [line.strip() for line in lines]


def _option(option: click.Option) -> str:
    names = ", ".join(option.opts)
    value = "" if option.is_flag else f" {_metavar(option)}"
    help = (option.help or "").rstrip(".")
    return item(f"{code(names + value)}: {help}.")


def _metavar(option: click.Option) -> str:
    if option.metavar is None and isinstance(option.type, click.Choice):
        return "|".join(map(str, option.type.choices))
    return option.metavar or option.type.name.upper()
