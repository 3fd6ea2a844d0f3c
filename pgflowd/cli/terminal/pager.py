"""Shows a long text through the pager of the user: `PAGER`, else `less`."""

from __future__ import annotations

import shutil
import sys

import click

from pgflowd.cli.terminal.screen import Screen, emit
from pgflowd.core.redact import safe_lines


def show(lines: list[str], screen: Screen) -> None:
    """Print lines; where they are more than a terminal has, through the pager."""
    text = safe_lines("\n".join(lines), is_painted=screen.colour)
    is_watched = sys.stdin.isatty() and screen.redraws
    if is_watched and len(lines) >= shutil.get_terminal_size((80, 24)).lines:
        try:
            click.echo_via_pager(text, color=None if screen.colour else False)
            return
        except ValueError:  # PAGER is no command line, as with one quote
            pass
    emit(text, sys.stdout, is_painted=screen.colour)
