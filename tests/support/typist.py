"""A shell behind a terminal, at which somebody types."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import subprocess
import termios
from collections.abc import Sequence
from pathlib import Path

from pgflowd.testing.until import until

OPTIONS = {  # without anybody's own settings
    "bash": ["--noprofile", "--norc", "-i"],
    "zsh": ["-f", "-i"],
    "fish": ["--no-config", "-i"],
}


class Typist:
    """A terminal with a shell, and simulated typing."""

    def __init__(
        self, shell: str, home: Path, turn_on: str, inside: Sequence[str | Path] = ()
    ) -> None:
        self.leader, follower = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [*inside, shell, *OPTIONS[shell]],
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "HOME": str(home), "TERM": "xterm", "COLUMNS": "200",
                 "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home)},
        )  # fmt: skip
        os.close(follower)
        self.type(f"{turn_on}; echo is''on\r")
        self.sees("ison")

    def completes(self, begun: str, whole: str) -> None:
        """Press Tab, and have the shell print the line that became of it."""
        self.type(f"{begun}\t\x01echo \r")
        self.sees(f"\n{whole}")

    def type(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def sees(self, text: str) -> None:
        until(lambda: text in self._look(), within_s=30)

    def _look(self) -> str:
        while select.select([self.leader], [], [], 0.01)[0]:
            self.shown += os.read(self.leader, 65536).decode(errors="replace")
        return re.sub(r"\x1b(\[[0-9;?]*\w|\(B|\]0;[^\x07]*\x07)|\r", "", self.shown)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.leader)
