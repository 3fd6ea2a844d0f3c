"""Prints texts behind a label or another head, folded where the screen is narrow."""

from __future__ import annotations

from pgflowd.cli.app import App
from pgflowd.cli.terminal.traceback_view import error_lines


def print_labelled(app: App, label: str, text: str) -> None:
    first, *others = error_lines(app, text)
    print_wrapped(app, f" {label}", first)
    for line in others:
        print_wrapped(app, " ", line.lstrip())


def print_wrapped(app: App, head: str, text: str) -> None:
    """A text behind its head, or below it where there is no room."""
    for line in app.out.wrapped(app.out.shown(text), head=f"{head}  ", indent=3):
        app.print(line)
