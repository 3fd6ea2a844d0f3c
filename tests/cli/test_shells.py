"""Completion as people have it: in the real shells, behind the Tab key."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgflowd.testing.until import until

START = {  # without anybody's own settings: how the shell starts, and what turns completion on
    "bash": (["--noprofile", "--norc", "-i"], "source <(pgflowd completion bash)"),
    "zsh": (["-f", "-i"], "autoload -U compinit; compinit -u; source <(pgflowd completion zsh)"),
    "fish": (
        ["--no-config", "-i"],
        "set -g fish_autosuggestion_enabled 0; pgflowd completion fish | source",
    ),
}
SHELLS = [shell for shell in START if shell == "bash" or shutil.which(shell)]


class Typist:
    """A terminal with a shell, and simulated typing."""

    def __init__(self, shell: str, home: Path) -> None:
        words, turn_on = START[shell]
        self.leader, follower = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            [shell, *words],
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


@pytest.fixture(params=SHELLS)
def typist(request, shop, elsewhere, monkeypatch) -> Iterator[Typist]:
    """A shell that finds the tested `pgflowd`, with a database that has flows."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)
    typist = Typist(request.param, elsewhere)
    yield typist
    typist.close()


def test_tab_completes_commands_flows_and_runs(typist, shop):
    run_id = str(shop.start("send_email"))[-8:]

    typist.completes("pgflowd comp", "pgflowd completion")
    typist.completes("pgflowd runs start ana", "pgflowd runs start analyze_website")
    typist.completes(f"pgflowd runs show {run_id[:5]}", f"pgflowd runs show {run_id}")
    typist.completes("pgflowd runs list --si", "pgflowd runs list --since")
