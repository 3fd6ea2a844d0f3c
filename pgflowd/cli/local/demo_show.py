"""
Demo show: starts the example flows and shows how far they are, until all have ended.

On a terminal each flow has a line with a bar that grows; elsewhere a line is printed when its
run has ended. A run that takes longer than `PATIENCE_S` is given up.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

import psycopg

from pgflowd.cli.app import App
from pgflowd.client import Client
from pgflowd.db import overview
from pgflowd.db.query import execute as perform
from pgflowd.db.runs import Run

PATIENCE_S = 60.0
LOOK_EVERY_S = 0.1
BAR = 20
_RETRIED = {"failed", "timed_out", "crashed"}


class Example(NamedTuple):
    """A flow, the input of its run, and what it shows."""

    flow: str
    input: dict[str, Any]
    shows: str


EXAMPLES = (
    Example("analyze_website", {"url": "https://example.com"}, "a diamond: two steps side by side"),
    Example("resize_images", {"count": 100}, "a map: 100 tasks, 10 at a time"),
    Example("flaky_payment", {"order": 7, "amount": 42}, "a failure and a timeout, on purpose"),
)


@dataclass
class _Show:
    """One run, as it was when it was last looked at."""

    example: Example
    run_id: UUID
    run: Run
    tasks: int = 0
    done: int = 0

    @property
    def took_s(self) -> float:
        ended = self.run.completed_at or self.run.failed_at
        began = self.run.started_at
        return (ended - began).total_seconds() if ended and began else 0.0


class Shows:
    """The runs of the demo."""

    def __init__(self, app: App, connection: psycopg.Connection[Any]) -> None:
        self._app, self._connection = app, connection
        self._client = Client(connection)
        self._live = not app.json and app.out.redraws
        self._drawn: list[str] = []
        self._shows = []
        for example in EXAMPLES:
            run = self._client.start_flow(example.flow, example.input)
            self._shows.append(_Show(example, run.run_id, run))
        self._told: set[UUID] = set()

    def watch(self) -> bool:
        """Show the runs until they have ended; tell whether all completed."""
        until = time.monotonic() + PATIENCE_S
        while True:
            for show in self._shows:
                self._look(show)
            self._draw()
            if all(show.run.has_ended for show in self._shows) or time.monotonic() > until:
                return all(show.run.status == "completed" for show in self._shows)
            time.sleep(LOOK_EVERY_S)

    def told(self) -> dict[str, Any]:
        """The same for programs: runs, tasks, retries."""
        attempts = [
            attempt
            for show in self._shows
            for attempt in perform(self._connection, overview.attempts(show.run_id))
        ]
        runs = [
            {
                "flow": show.example.flow,
                "run_id": str(show.run_id),
                "status": show.run.status,
                "took_s": round(show.took_s, 3),
                "output": show.run.output,
            }
            for show in self._shows
        ]
        retries = sum(attempt["outcome"] in _RETRIED for attempt in attempts)
        return {"runs": runs, "tasks": sum(s.done for s in self._shows), "retries": retries}

    def _look(self, show: _Show) -> None:
        if not show.run.has_ended:
            show.run = self._client.get_run(show.run_id)
            steps = perform(self._connection, overview.run_steps(show.run_id))
            show.tasks = sum(max(step.tasks, 1) for step in steps)
            show.done = sum(step.completed for step in steps)

    def _draw(self) -> None:
        if self._app.json:
            return
        if self._live:
            self._redraw([self._end(s) if s.run.has_ended else self._bar(s) for s in self._shows])
            return
        for show in self._shows:
            if show.run.has_ended and show.run_id not in self._told:
                self._told.add(show.run_id)
                self._print(self._end(show))
        sys.stdout.flush()

    def _redraw(self, lines: list[str]) -> None:
        """Write over the lines that stand there, if any has changed."""
        if lines == self._drawn:
            return
        if self._drawn:
            sys.stdout.write(f"\x1b[{len(self._drawn)}A")
        for line in lines:
            self._print(f"\x1b[2K{line}")
        self._drawn = lines
        sys.stdout.flush()

    def _print(self, line: str) -> None:
        sys.stdout.write(line + "\n")

    def _bar(self, show: _Show) -> str:
        screen = self._app.out
        full, empty = ("█", "░") if screen.unicode else ("#", ".")
        name = f"  {screen.sign('running')} {show.example.flow:17}"
        count = f"{show.done}/{show.tasks}"
        room = min(BAR, (screen.width or 80) - len(f"{name}  {count}"))
        filled = room * show.done // max(show.tasks, 1)
        return f"{name} {full * filled}{empty * (room - filled)} {count}"[: screen.width]

    def _end(self, show: _Show) -> str:
        screen = self._app.out
        well = show.run.status == "completed"
        sign = screen.paint(screen.sign("done" if well else "failed"), "green" if well else "red")
        about = show.example.shows if well else self._app.hide(show.run.error or show.run.status)
        told = f"{show.example.flow:17} {show.run.status} in {show.took_s:.1f} s     {about}"
        room = (screen.width or 1_000) - 4
        return f"  {sign} {told[:room]}"
