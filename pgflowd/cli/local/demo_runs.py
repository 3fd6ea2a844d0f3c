"""
Starts the example flows of the demo, and shows their progress until all runs have ended.

On a terminal each run has a line with a progress bar. Elsewhere a line is printed when a run
has ended. After `RUN_TIMEOUT_S` the demo stops waiting.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import cycle
from typing import Any, NamedTuple, NoReturn
from uuid import UUID

import psycopg

from pgflowd.cli.app import App
from pgflowd.client import Client
from pgflowd.core.documents.runs import Run
from pgflowd.core.statuses import Marks, RunStatus
from pgflowd.core.text import duration
from pgflowd.db.attempts import attempts
from pgflowd.db.query import execute
from pgflowd.db.runs import run_steps

RUN_TIMEOUT_S = 60.0  # the runs need about 5 s
POLL_S = 0.1  # often enough for a bar that moves
NEXT_RUN_S = 5.0  # who opens the dashboard then soon sees a run move
BAR_WIDTH = 20  # characters


class Example(NamedTuple):
    """A flow, the input of its run, and what it demonstrates."""

    flow: str
    input: dict[str, Any]
    about: str
    end: RunStatus = RunStatus.COMPLETED


EXAMPLES = (
    Example("analyze_website", {"url": "https://example.com"}, "a diamond: two steps in parallel"),
    Example("resize_images", {"count": 100}, "a map: 100 tasks, 10 at a time"),
    Example("flaky_payment", {"order": 7, "amount": 42}, "a failure and a timeout, on purpose"),
    Example(
        "undone_payment", {"order": 8, "amount": 12}, "a lost parcel: its payment is undone",
        RunStatus.UNDONE,
    ),
)  # fmt: skip


@dataclass
class _DemoRun:
    """One run, as it was last read."""

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

    @property
    def went_well(self) -> bool:
        return self.run.status is self.example.end


class DemoRuns:
    """The runs of the demo."""

    def __init__(self, app: App, connection: psycopg.Connection[Any]) -> None:
        self._app, self._connection = app, connection
        self._client = Client(connection)
        self._drawn: list[str] = []
        self._runs = []
        for example in EXAMPLES:
            run = self._client.start_flow(example.flow, example.input)
            self._runs.append(_DemoRun(example, run.run_id, run))

    def watch(self) -> bool:
        """Show the runs until they have ended; return whether all went well."""
        until = time.monotonic() + RUN_TIMEOUT_S
        while True:
            for demo_run in self._runs:
                self._read(demo_run)
            self._draw()
            if all(demo_run.run.has_ended for demo_run in self._runs) or time.monotonic() > until:
                return all(demo_run.went_well for demo_run in self._runs)
            time.sleep(POLL_S)

    def go_on(self, *, starts: bool) -> NoReturn:
        """Wait for Ctrl-C; start a run every few seconds, of one flow after the other."""
        for example in cycle(EXAMPLES):
            next_at = time.monotonic() + NEXT_RUN_S
            while time.monotonic() < next_at:
                time.sleep(POLL_S)  # a signal just before pause() would be missed
            if starts:
                self._client.start_flow(example.flow, example.input)
        raise AssertionError("a cycle has no end")

    def summary(self) -> dict[str, Any]:
        """The results for `--json`: runs, tasks, retries."""
        retries = sum(
            attempt.attempt > 1
            for demo_run in self._runs
            for attempt in execute(self._connection, attempts(demo_run.run_id))
        )
        runs = [
            {
                "flow": demo_run.example.flow,
                "run_id": str(demo_run.run_id),
                "status": demo_run.run.status,
                "took_s": round(demo_run.took_s, 3),
                "output": demo_run.run.output,
            }
            for demo_run in self._runs
        ]
        return {"runs": runs, "tasks": sum(s.done for s in self._runs), "retries": retries}

    def _read(self, demo_run: _DemoRun) -> None:
        if not demo_run.run.has_ended:
            demo_run.run = self._client.get_run(demo_run.run_id)
            steps = execute(self._connection, run_steps(demo_run.run_id))
            demo_run.tasks = sum(max(step.tasks, 1) for step in steps)
            demo_run.done = sum(step.completed for step in steps)

    def _draw(self) -> None:
        """Print the runs that have ended; on a terminal all, over the lines printed before."""
        if self._app.json:
            return
        is_live = self._app.out.redraws
        shown = [each for each in self._runs if is_live or each.run.has_ended]
        lines = [self._end(each) if each.run.has_ended else self._bar(each) for each in shown]
        if is_live and lines != self._drawn:
            up = f"\x1b[{len(self._drawn)}A\x1b[J" if self._drawn else ""
            self._app.print("\n".join(lines), cursor=up)
        for line in lines if not is_live else []:
            if line not in self._drawn:
                self._app.print(line)
        self._drawn = lines

    def _bar(self, demo_run: _DemoRun) -> str:
        screen = self._app.out
        full, empty = ("█", "░") if screen.unicode else ("#", ".")
        name = f"  {screen.sign(Marks.ACTIVE)} {demo_run.example.flow:17}"
        count = f"{demo_run.done}/{demo_run.tasks}"
        room = min(BAR_WIDTH, (screen.width or 80) - len(f"{name}  {count}"))
        filled = room * demo_run.done // max(demo_run.tasks, 1)
        return f"{name} {full * filled}{empty * (room - filled)} {count}"[: screen.width]

    def _end(self, demo_run: _DemoRun) -> str:
        screen = self._app.out
        went_well = demo_run.went_well
        sign = screen.marked((demo_run.example.end if went_well else RunStatus.FAILED).mark)
        error = self._app.hide(demo_run.run.error or demo_run.run.status)
        about = demo_run.example.about if went_well else error
        ended = f"{demo_run.run.status} in {duration(demo_run.took_s)}"
        room = (screen.width or 1_000) - 4
        return f"  {sign} {f'{demo_run.example.flow:17} {ended}     {about}'[:room]}"
