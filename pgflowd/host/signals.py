"""
Turns signals into bytes in a pipe, so that a loop can wait for them.

The handlers are empty. Python writes each signal's number into the pipe (`set_wakeup_fd`), and
`received` reads them in order. So SIGINT and SIGTERM interrupt no code.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterable
from types import FrameType


class SignalPipe:
    """The signals that arrived since the last call of `received`."""

    def __init__(self, wanted: Iterable[signal.Signals]) -> None:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._wanted = tuple(wanted)
        for number in self._wanted:
            signal.signal(number, _nothing)

    def fileno(self) -> int:
        return self._read

    def ignore(self) -> None:
        """Ignore the signals from now on, for a process that ends.

        Python restores the default actions while it ends, and one more signal would then
        become our exit status.
        """
        for number in self._wanted:
            signal.signal(number, signal.SIG_IGN)

    def received(self) -> list[signal.Signals]:
        """Return the signals that have arrived, without waiting."""
        try:
            return [signal.Signals(number) for number in os.read(self._read, 4096)]
        except BlockingIOError:
            return []


def stacks() -> dict[str, str]:
    """Return the stack of each thread of this process, by the thread's name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {
        names.get(ident, str(ident)): "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    }


def _nothing(number: int, frame: FrameType | None) -> None:
    """Do nothing: the number is in the pipe."""
