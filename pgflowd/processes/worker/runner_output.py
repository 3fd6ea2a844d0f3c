"""
One of a runner's pipes, stdout or stderr, as the worker reads it.

Lines go to a function until the task has had its megabyte, or its ten thousand lines, since each
becomes a record of some hundred bytes. The rest is counted, and read in large pieces, with pauses;
its last bytes are kept if they are wanted, else it is moved to /dev/null by `splice`, without being
read. A dying runner writes its stack there.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress

from pgflowd.core.line_budget import LineBudget

PIECE = 64 * 1024
WIDE = 16 * PIECE  # what the pipe of a flood holds, so that it is read in few pieces
PAUSE_S = 0.01  # between two of these: 100 MB/s
MAX_PASSES = 64  # that read what has come; a handler may write on and on
TAIL = 32 * 1024

_STACK_BEGINS = re.compile(r"Fatal Python error: |(Current thread|Thread) 0x|Current task \(")
_STACK_GOES_ON = re.compile(r"  File |  \.\.\.|  <|Extension modules: |Stack \(|$")
_devnull: list[int] = []


class Output:
    """The reading end of a pipe; number None: there is none."""

    def __init__(
        self,
        number: int | None,
        budget: LineBudget,
        log: Callable[[str], None] | None = None,
        keeps: int = 0,
    ) -> None:
        self.number = -1 if number is None else number
        self.unseen = 0
        self.late = b""  # the last bytes of what is unseen, as many as it keeps
        self.late_at = 0.0
        self._keeps = keeps
        self.keeps_stack = False
        self._log = log
        self._budget = budget
        self._is_in_stack = False
        self._is_wide = False
        self._line = b""
        self._tail = b""
        if number is not None:
            os.set_blocking(number, False)

    def begin(self) -> None:
        """A new task begins."""
        if self._is_wide:
            self._set_size(PIECE)
        self._budget.refill()
        self.unseen, self._tail, self.late = 0, b"", b""

    def read(self) -> bool:
        """Take a piece of what came; return False at the end of the pipe."""
        return self._take() is not None

    @property
    def is_flood(self) -> bool:
        """Whether what comes is too much for the log, and may come in large pieces."""
        if self._budget.is_spent and not self._is_wide:
            self._set_size(WIDE)
        return self._budget.is_spent

    def _set_size(self, size: int) -> None:
        self._is_wide = size == WIDE
        with suppress(OSError):  # all pipes of a user hold only so much; or it holds more now
            fcntl.fcntl(self.number, fcntl.F_SETPIPE_SZ, size)

    def finish(self, has_more: bool) -> None:
        """Read what has come until now, and log the last line."""
        if has_more and self.number >= 0:
            for _ in range(MAX_PASSES):
                if not self._take():
                    break
        if self._line:
            self._log_line(self._line)
            self._line = b""

    def stack(self) -> str:
        """The stack that was written last, or ""."""
        lines = self._tail.decode("utf-8", "replace").split("\n")
        return "\n".join(line for line in lines if self._is_stack_line(line)).strip()

    def close(self) -> None:
        if self.number >= 0:
            os.close(self.number)
            self.number = -1

    def _take(self) -> int | None:
        """Return how many bytes came; 0: none now; None: the end."""
        try:
            if self._budget.is_spent and not self.keeps_stack:
                if not self._keeps:
                    return self._skip(WIDE) or None
                if (excess := _waiting(self.number) - self._keeps) > 0:
                    self._leave_out(b"")
                    self._skip(excess)
                    self.late = b""
            piece = os.read(self.number, PIECE)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            return None
        if not piece:
            return None
        self._tail = piece[-TAIL:] if len(piece) >= TAIL else (self._tail + piece)[-TAIL:]
        self._split(piece)
        return len(piece)

    def _skip(self, most: int) -> int:
        """Leave out the next bytes unread."""
        count = os.splice(self.number, _null(), most, flags=os.SPLICE_F_NONBLOCK)
        self.unseen += count
        return count

    def _split(self, piece: bytes) -> None:
        if self._budget.is_spent:
            self._leave_out(piece)
            return
        self._budget.room -= len(piece)
        *lines, rest = (self._line + piece).split(b"\n", self._budget.lines_now)
        self._budget.lines -= len(lines)
        for line in lines:
            self._log_line(line)
        if self._budget.lines_now <= 0:
            self._leave_out(rest, b"\n")
            rest = b""
        self._line = rest[-PIECE:]

    def _leave_out(self, piece: bytes, before: bytes = b"") -> None:
        """It is not logged. `before`: if a line begins with it, the end of the last one."""
        self.unseen += len(piece)
        if self._line:  # it came before
            self._log_line(self._line)
            self._line = b""
        if self._keeps and piece:
            is_enough = len(piece) >= self._keeps
            late = piece if is_enough else self.late + before + piece
            self.late, self.late_at = late[-self._keeps :], time.monotonic()

    def _log_line(self, line: bytes) -> None:
        text = line.decode("utf-8", "backslashreplace")
        if not self._is_stack_line(text) and self._log is not None:
            self._log(text)

    def _is_stack_line(self, line: str) -> bool:
        goes_on = self._is_in_stack and _STACK_GOES_ON.match(line)
        self._is_in_stack = bool(_STACK_BEGINS.match(line) or goes_on)
        return self._is_in_stack


def _waiting(number: int) -> int:
    """How many bytes a pipe holds."""
    return int.from_bytes(fcntl.ioctl(number, termios.FIONREAD, bytes(4)), sys.byteorder)


def _null() -> int:
    if not _devnull:
        _devnull.append(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC))
    return _devnull[0]
