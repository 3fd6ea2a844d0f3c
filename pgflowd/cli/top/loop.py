"""The loop of `pgflowd top`: read what is shown, draw it, and wait for a key or the time."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import datetime

from pgflowd.cli.app import App
from pgflowd.cli.terminal.screen import Screen
from pgflowd.cli.top.differences import differences, fitted
from pgflowd.cli.top.keys import KeyReader
from pgflowd.cli.top.model import State, choose, limited, press
from pgflowd.cli.top.picture import Body, Times, body, paused_flow, picture, room_for
from pgflowd.cli.top.source import TopSource
from pgflowd.cli.top.terminal import Terminal

EVERY_S = 2.0  # between two reads; longer where they take long
SHARE = 5  # at most a fifth of the time is spent reading
ESCAPE_S = 0.05  # in which the rest of an escape sequence comes


class Loop:
    """One `top`: its state, its sources and its terminal."""

    def __init__(self, app: App, terminal: Terminal, source: TopSource) -> None:
        self.app, self.terminal, self.source = app, terminal, source
        self.state = State()
        self.keys = KeyReader()
        self._screen, self._height = self._look()
        self._frame: list[str] | None = None
        self._read_at = 0.0

    def run(self) -> None:
        """Show and obey until somebody quits."""
        self._draw()  # before the first read, which may take a while
        is_going = True
        while is_going:
            self.terminal.obey()
            if not self.state.is_stopped and time.monotonic() >= self._read_at:
                self._read()
            self._draw()
            until = min(self._read_at, _next_second()) if not self.state.is_stopped else None
            wait_s = 3600.0 if until is None else until - time.monotonic()
            is_going = all(map(self._press, self._typed(wait_s)))

    def _read(self) -> None:
        began = time.monotonic()
        self.source.read(self.state)
        now = time.monotonic()
        self._read_at = now + max(EVERY_S, (now - began) * SHARE)

    def _typed(self, max_s: float) -> list[str]:
        keys = self.keys.feed(self.terminal.read(max_s))
        if self.keys.is_waiting:
            keys += self.keys.feed(self.terminal.read(ESCAPE_S)) or self.keys.end_waiting()
        return keys

    def _press(self, key: str) -> bool:
        """Obey a key; whether it goes on."""
        shown = self._body()
        room = self._room(shown)
        paused = paused_flow(self.state, self.source.seen)
        self.state, effect = press(self.state, key, shown.keys, room, paused)
        if effect.act is not None:
            self._draw()  # without the question
            self.state = replace(self.state, note=self.source.act(effect.act))
        if effect.reads or effect.act is not None:
            self._read()
        return not effect.quits

    def _draw(self) -> None:
        """Draw what has changed; the size is looked up each time."""
        before = (self._screen, self._height)
        self._screen, self._height = self._look()
        if self.terminal.is_new or before != (self._screen, self._height):
            self._frame, self.terminal.is_new = None, False
        shown = self._body()
        lines = picture(self.state, self.source.seen, self._screen, self._height, shown, _times())
        frame = fitted(lines, self._screen, self._height)
        self.terminal.write(differences(self._frame, frame))
        self._frame = frame

    def _body(self) -> Body:
        """What is shown; the state is made to fit it."""
        shown = body(self.state, self.source.seen, self._screen, self.app.secrets)
        if not self.state.shows_help:
            self.state = choose(self.state, shown.keys)
        self.state = limited(self.state, len(shown.lines), self._room(shown))
        return shown

    def _room(self, shown: Body) -> int:
        return room_for(self._screen, self._height, self.state, self.source.seen, shown, _times())

    def _look(self) -> tuple[Screen, int]:
        columns, height = self.terminal.size
        return replace(self.app.out, width=columns), height


def _times() -> Times:
    return Times(datetime.now().astimezone(), time.monotonic())


def _next_second() -> float:
    """When the clock on the screen changes."""
    return time.monotonic() + 1.0 - time.time() % 1.0
