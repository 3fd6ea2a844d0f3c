"""
Users of an embedded server that are processes of their own, so that they can be killed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

USER = """
import sys
from pgflowd.embedded import EmbeddedPostgres
with EmbeddedPostgres(sys.argv[1]) as pg:
    print(pg.pid, flush=True)
    sys.stdin.read()
"""


class User:
    """A process that uses the server of a directory until it leaves or is killed."""

    def __init__(self, directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(directory)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def joined(self) -> int:
        """Return the server's process id, when the user has joined."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())

    def leave(self) -> None:
        self.process.communicate(timeout=30)
        assert self.process.returncode == 0

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=30)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
