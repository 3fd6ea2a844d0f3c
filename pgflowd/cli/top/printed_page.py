"""
Keeps what the commands print, as lines of a screen.

`runs list`, `runs show` and `runs follow` print with an `App`; here it is a `PrintedPage`, so a run
looks the same in `top`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from pgflowd.cli.app import App
from pgflowd.cli.terminal.history_view import TimelineWriter
from pgflowd.cli.terminal.run_view import print_run, print_runs
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.runs import ListedRun, RunDetails, TimelineEntry


class PrintedPage(App):
    """An `App` that prints to a list, as wide as a screen is."""

    def __init__(self, screen: Screen, secrets: set[str]) -> None:
        super().__init__()
        self.secrets = secrets
        self.lines: list[str] = []
        self._screen = screen

    @property
    def out(self) -> Screen:
        return self._screen

    @property
    def err(self) -> Screen:
        return self._screen

    def print(self, text: str = "", *, cursor: str = "") -> None:
        self.lines += text.split("\n")

    def note(self, text: str) -> None:
        self.lines += self._screen.wrapped(text)


def run_lines(page: PrintedPage, details: RunDetails) -> list[str]:
    """A run as `runs show` shows it."""
    print_run(page, details)
    return page.lines


def list_lines(page: PrintedPage, runs: Sequence[ListedRun], now: datetime) -> list[str]:
    """A line with titles, and one for each run, as `runs list` has them."""
    print_runs(page, runs, now)
    return page.lines


def event_lines(page: PrintedPage, entries: Sequence[TimelineEntry]) -> list[str]:
    """What happened in a run, as `runs follow` tells it."""
    writer = TimelineWriter(page)
    for entry in entries:
        writer.write(entry)
    return page.lines
