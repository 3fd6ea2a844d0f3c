"""
Shows pages of the documentation on a terminal, and lists of pages and codes.

A terminal shows a page as Rich renders its Markdown, if Rich is installed (the extra `top` brings
it); otherwise it is the text itself. What is longer than the terminal goes through `$PAGER`.
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import groupby

import click

from pgflowd.cli.terminal.screen import Screen, columns, emit
from pgflowd.core.documents.documentation import FoundText, TableOfContents
from pgflowd.core.redact import safe_lines
from pgflowd.errors import GROUPS, TITLES

_WIDE = 72  # columns from which topics have a column of their own
_SHORT = 24  # columns; a longer topic stands on a line of its own
_STYLES = {"markdown.code": "cyan", "markdown.code_block": "", "markdown.table.border": "dim"}


def show_page(text: str, screen: Screen) -> None:
    """Print a page, through the pager if it is longer than the terminal."""
    is_rendered = screen.redraws and screen.unicode and find_spec("rich") is not None
    show((_rendered(text, screen) if is_rendered else text).splitlines(), screen)


def show(lines: Iterable[str], screen: Screen) -> None:
    """Print lines; more than a terminal has go through `$PAGER`, by default `less`."""
    shown = list(lines)
    text = safe_lines("\n".join(shown), is_painted=screen.colour)
    is_long = len(shown) >= shutil.get_terminal_size((80, 24)).lines
    has_pager = os.environ.get("PAGER", "less") not in ("", "cat")
    if is_long and has_pager and sys.stdin.isatty() and screen.redraws:
        try:
            click.echo_via_pager(text, color=None if screen.colour else False)
            return
        except ValueError:  # PAGER is not a command line, as with one quote
            pass
    emit(text, sys.stdout, is_painted=screen.colour)


def contents_lines(contents: TableOfContents, screen: Screen) -> Iterator[str]:
    topics = [page.topic for page in contents.pages if len(page.topic) <= _SHORT]
    indent = max(map(len, topics), default=0) + 4
    if screen.width is not None and screen.width < _WIDE:
        indent = 6
    for number, part in enumerate(contents.parts):
        if number:
            yield ""
        yield screen.paint(part.title, None, bold=True)
        for page in part.pages:
            head = f"  {screen.paint(page.topic, 'cyan')}"
            head += " " * max(indent - columns(head), 2)
            text = page.about or page.title
            yield from screen.wrapped(text, head=head, indent=indent, whole=True)


def found_lines(found: Iterable[FoundText], screen: Screen) -> Iterator[str]:
    """The places of each page below its topic and title."""
    for number, (topic, places) in enumerate(groupby(found, lambda each: each.topic)):
        for place, each in enumerate(places):
            if not place:
                if number:
                    yield ""
                head = f"{screen.paint(topic, 'cyan', bold=True)}  "
                yield from screen.wrapped(each.title, head=head, indent=2, whole=True)
            head = f"  {each.heading}: " if each.heading else "  "
            yield from screen.wrapped(screen.shown(each.text), head=head, indent=4, whole=True)


def code_lines(codes: Iterable[str], screen: Screen) -> Iterator[str]:
    """Codes with their titles, below what they are about."""
    groups: dict[str, list[str]] = {}
    for code in codes:
        groups.setdefault(GROUPS[code[1]], []).append(code)
    for number, (group, members) in enumerate(groups.items()):
        if number:
            yield ""
        yield screen.paint(group, None, bold=True)
        for code in members:
            colour = "yellow" if code.startswith("W") else "red"
            head = f"  {screen.paint(code, colour, bold=True)}  "
            yield from screen.wrapped(TITLES[code], head=head, indent=8, whole=True)


def _rendered(text: str, screen: Screen) -> str:
    from rich.console import Console
    from rich.markdown import Markdown
    from rich.theme import Theme

    console = Console(
        file=io.StringIO(),
        width=screen.width,
        force_terminal=screen.colour,
        color_system="standard" if screen.colour else None,
        theme=Theme(_STYLES),
        legacy_windows=False,
    )
    with console.capture() as printed:
        console.print(Markdown(text, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in printed.get().splitlines())
