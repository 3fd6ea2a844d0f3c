"""A program on a terminal that can be looked at, typed on and resized, as people have it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyte

from pgflowd.testing.until import until

UP, DOWN, ENTER, ESCAPE, BACKSPACE = "\x1b[A", "\x1b[B", "\r", "\x1b", "\x7f"
CTRL_C, CTRL_Z = "\x03", "\x1a"


class LiveTerminal:
    """The program, and what its terminal shows; `sent` has all its bytes."""

    def __init__(
        self, words: Sequence[str], columns: int, lines: int, cwd: Path | None = None, **env: str
    ) -> None:
        self.leader, self._follower = pty.openpty()
        self.sent = b""
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self._set_size(columns, lines)
        self.settings_before = self.settings
        environ = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        self.process = subprocess.Popen(
            words,
            stdin=self._follower, stdout=self._follower, stderr=self._follower,
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            cwd=cwd, env={**environ, "TERM": "xterm", "LANG": "C.UTF-8", **env},
        )  # fmt: skip

    @property
    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._follower)

    @property
    def lines(self) -> list[str]:
        """What it shows now, without blanks at the ends."""
        while select.select([self.leader], [], [], 0)[0]:
            data = os.read(self.leader, 65536)
            self.sent += data
            self._stream.feed(data)
        return [line.rstrip() for line in self.screen.display]

    def type(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def sees(self, *texts: str, within_s: float = 60) -> str:
        """Wait until all these are on the screen; return it."""
        try:
            until(lambda: all(text in self.text for text in texts), within_s=within_s)
        except Exception as error:
            raise AssertionError(f"no {texts} in\n{self.text}") from error
        return self.text

    def sees_no(self, text: str) -> None:
        until(lambda: text not in self.text, within_s=60)

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def resize(self, columns: int, lines: int) -> None:
        """Another size, on an empty screen: only what is drawn for it is there."""
        _ = self.lines
        self.screen.resize(lines, columns)
        self.screen.reset()
        self._set_size(columns, lines)

    def ended(self, within_s: float = 60) -> int:
        """How the program ended; what it sent until then is known."""
        until(lambda: self.lines and self.process.poll() is not None, within_s)
        _ = self.lines
        return self.process.returncode

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)
        os.close(self._follower)

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
