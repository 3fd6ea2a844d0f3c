"""
The terminal of `pgflowd top`: keys one by one, a screen of its own, and all as before at the end.

Ctrl-C, SIGTERM, SIGHUP and SIGQUIT raise, wherever the command is; the settings are restored on the
way out. Ctrl-Z restores them, stops the process, and takes the screen again when it goes on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# another screen, no cursor, and no new line behind the last column
_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE = b"\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
_ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WAKING = (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT)


class Signalled(BaseException):
    """A signal ends the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class HungUp(Exception):
    """The terminal is gone."""


class Terminal:
    """Standard input and output, while `top` has them."""

    def __init__(self) -> None:
        self.input, self.output = sys.stdin.fileno(), sys.stdout.fileno()
        self.is_new = True  # it shows nothing that we know
        self._settings = termios.tcgetattr(self.input)
        self._wakes, self._waked = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._handlers: dict[signal.Signals, Any] = {}
        self._wakeup_before = -1
        self._is_stopping = self._was_continued = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines; a terminal that does not know them is usual."""
        try:
            columns, lines = os.get_terminal_size(self.output)
        except OSError:
            columns, lines = 0, 0
        return columns or 80, lines or 24

    def write(self, text: str) -> None:
        data = text.encode("utf-8", "backslashreplace")
        while data:
            data = data[os.write(self.output, data) :]

    def read(self, max_s: float) -> bytes:
        """What was typed; nothing when the time is over or the screen has changed."""
        ready, _, _ = select.select([self.input, self._wakes], [], [], max(max_s, 0.0))
        if self._wakes in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(self._wakes, 4096)
        if self.input not in ready:
            return b""
        data = os.read(self.input, 4096)
        if not data:
            raise HungUp
        return data

    def obey(self) -> None:
        """Stop if Ctrl-Z was pressed; take the terminal again if somebody has stopped us."""
        if self._is_stopping:
            self._give_back()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)  # returns when we go on
            signal.signal(signal.SIGTSTP, self._note)
            self._is_stopping, self._was_continued = False, True
        if self._was_continued:
            self._was_continued = False
            self._take()

    def open(self) -> None:
        self._wakeup_before = signal.set_wakeup_fd(self._waked, warn_on_full_buffer=False)
        for number in (*_ENDING, *_WAKING):
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                self._handlers[number] = signal.getsignal(number)
                signal.signal(number, self._end if number in _ENDING else self._note)
        self._take()

    def close(self) -> None:
        """Restore everything; a signal that comes meanwhile is too late."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        for number in self._handlers:
            signal.signal(number, signal.SIG_IGN)
        self._give_back()
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        signal.signal(signal.SIGINT, before)
        os.close(self._wakes)
        os.close(self._waked)

    def _take(self) -> None:
        settings = termios.tcgetattr(self.input)
        settings[0] &= ~termios.IXON  # Ctrl-S would hold the screen
        settings[3] &= ~(termios.ICANON | termios.ECHO | termios.IEXTEN)
        settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self.input, termios.TCSANOW, settings)
        self.write(_ENTER.decode())
        self.is_new = True

    def _give_back(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            os.write(self.output, _LEAVE)
        with contextlib.suppress(termios.error):
            termios.tcsetattr(self.input, termios.TCSANOW, self._settings)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._is_stopping |= number == signal.SIGTSTP
        self._was_continued |= number == signal.SIGCONT

    def _end(self, number: int, frame: FrameType | None) -> None:
        raise Signalled(number)


@contextmanager
def own_terminal() -> Iterator[Terminal]:
    """Take the terminal, and give it back as it was."""
    terminal = Terminal()
    try:
        terminal.open()
        yield terminal
    finally:
        terminal.close()
