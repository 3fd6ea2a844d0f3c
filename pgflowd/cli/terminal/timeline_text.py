"""
Telling: prints the story of runs as lines, or as one JSON object per line.

A line has the time since the run's start, the step, what became of it, and its output as far
as there is room; texts of errors are never cut, but wrapped. With several runs each line names
its run.
"""

from __future__ import annotations

import re
import textwrap
from datetime import datetime
from typing import Any

from pgflowd.cli.app import App
from pgflowd.cli.terminal.marks import mark, plain
from pgflowd.cli.terminal.screen import text_width
from pgflowd.cli.terminal.timeline import TimelineEntry
from pgflowd.core.output_stream import OUTPUT
from pgflowd.core.redact import one_line
from pgflowd.core.text import brief, lasted, short_id, spoken

SCHEMA_VERSION = 1
_QUIET = {"step:started"}
_LOUD = {"warning": "yellow", "error": "red"}
_ANSI = re.compile(r"\[[0-9;]*[A-Za-z]")  # colours, mostly
_LEAST_TEXT = 24
_LONGEST_SLUG = 24
_OUTPUT = 100  # columns, where there is no terminal


class TimelineWriter:
    """Prints happenings as they come."""

    def __init__(self, app: App, *, many: bool = False) -> None:
        self.app, self.many = app, many
        self._slug_width = 10
        self._last: TimelineEntry | None = None

    def tell(self, happening: TimelineEntry) -> None:
        if self.app.json:
            self.app.print_json_line({"schema_version": SCHEMA_VERSION, **as_json(happening)})
        elif happening.event == "run:started":
            self._say(f"{self._run(happening)}  {happening.flow_slug}  started", None)
        elif happening.event == OUTPUT:
            self._output(happening)
            return
        elif happening.is_end:
            self._end(happening)
        elif self.app.verbose or not (happening.event in _QUIET or self._is_told(happening)):
            self._step(happening)
        self._last = happening

    def _is_told(self, happening: TimelineEntry) -> bool:
        """A step that fails with its last attempt has been told with that attempt."""
        last = self._last
        return (
            happening.event == "step:failed"
            and last is not None
            and last.event.startswith("task:")
            and (last.run_id, last.step, last.error)
            == (happening.run_id, happening.step, happening.error)
        )

    def _step(self, happening: TimelineEntry) -> None:
        head = self._head(happening)
        took = "" if happening.took_s is None else f" {lasted(happening.took_s)}"
        sign = mark(self.app.out, happening.event.partition(":")[2])
        shown = f"{head}{sign.painted(took)}"
        taken = len(head) + len(sign.text) + len(took)
        if happening.error or happening.event.startswith("task:"):
            self._wrapped(shown, taken, _trouble(happening))
        else:
            self._fitting(shown, taken, happening)

    def _output(self, happening: TimelineEntry) -> None:
        """A line that a handler printed or logged, below its step."""
        head = self._head(happening)
        sign = "│" if self.app.out.unicode else "|"
        level = happening.level if happening.level in _LOUD else None
        text = _ANSI.sub("", happening.text or "").expandtabs()
        text = one_line(f"{level}: {text}" if level else text)
        bar, width = self.app.out.paint(sign, _LOUD.get(level or "")), self.app.out.width
        if width is None or len(head) + 2 + text_width(text) <= width:
            self._say(f"{head}{bar} {text}", None)
            return
        if width - len(head) < _LEAST_TEXT:
            self._say(head, None)
            head = "    "
        room = max(width - len(head) - 2, _LEAST_TEXT)
        if (wide := text_width(text)) > len(text):
            room = max(room * len(text) // wide, 1)
        for piece in textwrap.wrap(text, room):
            self._say(f"{head}{bar} {piece}", None)
            head = " " * len(head)

    def _head(self, happening: TimelineEntry) -> str:
        """When, and which step; with a map's task."""
        slug = happening.step or ""
        if happening.task is not None and (happening.task or (happening.tasks or 1) > 1):
            slug += f"#{happening.task}"
        self._slug_width = min(max(self._slug_width, len(slug)), _LONGEST_SLUG)
        which = f"{short_id(happening.run_id)} " if self.many else ""
        when = lasted(happening.since_start_s)
        return f"{which}{when:>7}  {slug:<{self._slug_width}}  "

    def _end(self, happening: TimelineEntry) -> None:
        word = happening.event.partition(":")[2]
        sign = mark(self.app.out, word)
        head = f"{self._run(happening)}  "
        after = f" {word} {'in' if word == 'completed' else 'after'} "
        took = spoken(happening.took_s or 0.0)
        taken = len(head) + len(sign.text) + len(after) + len(took)
        shown = f"{head}{sign.painted(after + took)}"
        if happening.error:
            self._wrapped(shown, taken, happening.error)
        else:
            self._fitting(shown, taken, happening)

    def _fitting(self, shown: str, taken: int, happening: TimelineEntry) -> None:
        """A line with as much of the output as there is room for."""
        told = f"{happening.tasks} tasks  " if (happening.tasks or 0) > 1 else ""
        width = self.app.out.width
        room = _OUTPUT if width is None else width - taken - 3 - len(told)
        room -= len(self.app.out.sign("cut")) - 1  # where the sign for more is three dots
        if happening.event.endswith(":started"):
            output = ""
        else:
            output = one_line(brief(happening.output, room)) if room >= 8 else ""
        self._say(shown, f"{told}{output}")

    def _wrapped(self, shown: str, taken: int, text: str) -> None:
        """A line with all of a text, which goes on below where it is too long."""
        text, width = one_line(self.app.shorten_paths(text)), self.app.out.width
        if width is None or taken + 3 + len(text) <= width:
            self._say(shown, text)
            return
        self._say(shown, None)
        pad = "    " if width < 60 else " " * 11
        for line in textwrap.wrap(text, max(width - len(pad), 20)):
            self._say(f"{pad}{line}", None)

    def _say(self, shown: str, more: str | None) -> None:
        text = f"{shown}   {more}" if more else shown
        self.app.print(plain(self.app.out, self.app.hide(text)).rstrip())

    def _run(self, happening: TimelineEntry) -> str:
        return f"run {short_id(happening.run_id)}"


def as_json(happening: TimelineEntry) -> dict[str, Any]:
    """A happening for programs."""
    return {
        "event": happening.event,
        "run_id": happening.run_id,
        "flow": happening.flow_slug,
        "at": happening.at,
        "since_start_s": happening.since_start_s,
        "step": happening.step,
        "task": happening.task,
        "tasks": happening.tasks,
        "attempt": happening.attempt,
        "max_attempts": happening.max_attempts,
        "took_s": happening.took_s,
        "output": happening.output,
        "error": happening.error,
        "next_at": happening.next_at,
        "stream": happening.stream,
        "level": happening.level,
        "text": happening.text,
    }


def _trouble(happening: TimelineEntry) -> str:
    if happening.attempt is None:
        return happening.error or ""
    told = happening.event.partition(":")[2].replace("_", " ")
    text = happening.error or told
    which = f"attempt {happening.attempt} of {happening.max_attempts}"
    return f"{which}: {text}{_again(happening.at, happening.next_at)}"


def _again(at: datetime, next_at: datetime | None) -> str:
    if next_at is None:
        return ""
    wait_s = round((next_at - at).total_seconds())
    return f"; next in {spoken(wait_s)}" if wait_s > 0 else "; next at once"
