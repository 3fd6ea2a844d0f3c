"""
A command line in the background, whose lines are read as they come.

    with Background("runs", "follow", run_id, "--json") as follower:
        until(lambda: len(follower.events) == 3)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from support import documents


class Background:
    """A command line in a process of its own, read line by line."""

    def __init__(
        self, *args: str, cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> None:
        self.args = args
        self.process = subprocess.Popen(
            [sys.executable, "-m", "pgflowd.cli.main", *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, **(env or {})},
        )
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]

    def ended(self) -> int:
        code = self.process.wait(timeout=30)
        self._thread.join(timeout=10)
        documents.check(self.args, "\n".join(self.lines), "")
        return code

    def __enter__(self) -> Background:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join(timeout=10)
        assert self.process.stdout is not None and self.process.stderr is not None
        self.process.stdout.close()
        self.process.stderr.close()
