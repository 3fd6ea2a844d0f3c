"""
Writes a manual page for `pgflowd` and for each of its commands, from their help.

`python manual_pages.py DIRECTORY` writes pgflowd.1, pgflowd-runs.1, pgflowd-runs-start.1 and so on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from inspect import cleandoc
from os import environ
from pathlib import Path
from time import time

import click

from pgflowd import __version__
from pgflowd.cli.main import cli

RAW = "\b\n"  # begins a paragraph whose lines click keeps
EXAMPLE = re.compile(r"^Example: *", re.MULTILINE)
SPECIAL = {
    "\\": r"\e", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq",
}  # fmt: skip
FILES = {
    "/etc/pgflowd/pgflowd.toml": "The config, unless --config or $PGFLOWD_CONFIG names another, "
    "or the current directory has one.",
    "/etc/pgflowd/NAME.toml": "The config of the instance NAME.",
}


def escaped(text: str) -> str:
    """The text as roff shows it, character by character."""
    return "".join(
        SPECIAL.get(char) or (char if char.isascii() else f"\\[u{ord(char):04X}]") for char in text
    )


def lines_of(text: str) -> list[str]:
    """Lines of text; one with a dot at its beginning would be a request."""
    return [
        f"\\&{line}" if line.startswith(".") else line
        for line in (escaped(line.rstrip()) for line in text.splitlines())
    ]


def filled(text: str) -> str:
    return "\n".join(lines_of(" ".join(text.split())))


def as_typed(text: str) -> str:
    return "\n".join([".RS 4", ".nf", *lines_of(text), ".fi", ".RE"])


def labelled(label: str, text: str) -> str:
    return f".TP\n{label}\n{filled(text)}"


def bold(text: str) -> str:
    return rf"\fB{escaped(text)}\fR"


def page_name(path: Sequence[str]) -> str:
    return "-".join(path)


def page(ctx: click.Context, path: Sequence[str], date: str) -> str:
    """The manual page of one command; `path` are its words, from `pgflowd` on."""
    command, name = ctx.command, page_name(path)
    prose, examples = parts_of_help(command)
    usage = " ".join(command.collect_usage_pieces(ctx))
    labels = [(rf"{bold(page_name([*path, each]))}(1)", sub) for each, sub in commands(ctx)]
    files = [labelled(bold(file), text) for file, text in FILES.items()] if len(path) == 1 else []
    title = f'.TH "{escaped(name.upper())}" 1 "{date}" "pgflowd {__version__}" "pgflowd"'
    summary = command.get_short_help_str(200).rstrip(".")
    sections = {
        "NAME": rf"{escaped(name)} \- {escaped(summary)}",
        "SYNOPSIS": f"{bold(' '.join(path))} {escaped(usage)}",
        "DESCRIPTION": "\n.PP\n".join(filled(each) for each in prose),
        "OPTIONS": "\n".join(options(ctx)),
        "COMMANDS": "\n".join(labelled(each, sub.get_short_help_str(200)) for each, sub in labels),
        "FILES": "\n".join(files),
        "EXAMPLES": "\n".join(as_typed(example) for example in examples),
        "SEE ALSO": see_also(path),
    }
    written = [f".SH {heading}\n{text}" for heading, text in sections.items() if text]
    return "\n".join([title, *written]) + "\n"


def parts_of_help(command: click.Command) -> tuple[list[str], list[str]]:
    """The paragraphs of a command's help, and its examples."""
    paragraphs = cleandoc(command.help or "").split("\n\n")
    raw = [cleandoc(EXAMPLE.sub("", each[len(RAW) :])) for each in paragraphs if is_raw(each)]
    return [each for each in paragraphs if not is_raw(each)], raw


def is_raw(paragraph: str) -> bool:
    return paragraph.startswith(RAW)


def options(ctx: click.Context) -> Iterator[str]:
    """The options of a command; pgflowd(1) alone has those that all commands share."""
    shared = getattr(ctx.command, "global_options", [])
    for param in ctx.command.get_params(ctx):
        if isinstance(param, click.Option) and (ctx.parent is None or param not in shared):
            label, text = param.get_help_record(ctx) or ("", "")
            if label:  # else it is hidden
                yield labelled(bold(label), text)
    if ctx.parent is not None:
        yield f".PP\nThose that all commands have are in {bold('pgflowd')}(1)."


def commands(ctx: click.Context) -> Iterator[tuple[str, click.Command]]:
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            command = ctx.command.get_command(ctx, name)
            assert command is not None
            yield name, command


def see_also(path: Sequence[str]) -> str:
    if len(path) == 1:
        return f"{bold('systemctl')}(1), {bold('psql')}(1)"
    above = [page_name(path[:depth]) for depth in range(1, len(path))]
    return ", ".join(f"{bold(name)}(1)" for name in above)


def pages(ctx: click.Context, path: list[str], date: str) -> Iterator[tuple[str, str]]:
    """The name and text of the pages of a command and all below it."""
    yield page_name(path), page(ctx, path, date)
    for name, command in commands(ctx):
        below = command.context_class(command, info_name=name, parent=ctx)
        yield from pages(below, [*path, name], date)


def main(directory: Path) -> None:
    moment = datetime.fromtimestamp(int(environ.get("SOURCE_DATE_EPOCH") or time()), UTC)
    top = cli.context_class(cli, info_name="pgflowd", **cli.context_settings)
    for name, text in pages(top, ["pgflowd"], f"{moment:%Y-%m-%d}"):
        (directory / f"{name}.1").write_text(text, encoding="ascii")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
