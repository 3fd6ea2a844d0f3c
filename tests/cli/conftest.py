"""Running the command line: in this process, or as people do, in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from support import documents
from support.shop import MODULE, Shop

from pgflowd.cli.main import run
from pgflowd.testing.scratch import ScratchDatabase


@dataclass
class Ended:
    """The exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def problems(self) -> Any:
        return json.loads(self.err)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory as the current one, and an environment without variables of pgflowd."""
    for name in os.environ:
        if "PGFLOWD" in name or name in {"NO_COLOR", "RUNTIME_DIRECTORY", "STATE_DIRECTORY"}:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pgflowd(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """
    Run a command line here and return what became of it.

    What it prints with `--json` must be as its schema says.
    """

    def runs(*args: str) -> Ended:
        code = run(args)
        captured = capsys.readouterr()
        documents.check(args, captured.out, captured.err)
        return Ended(int(code), captured.out, captured.err)

    return runs


@pytest.fixture
def process(elsewhere: Path) -> Callable[..., Ended]:
    """Run a command line in a process of its own; `env` adds variables."""

    def runs(*args: str, stdin: IO[Any] | None = None, **env: str) -> Ended:
        ended = subprocess.run(
            [sys.executable, "-m", "pgflowd.cli.main", *args],
            stdin=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, **env},
        )
        documents.check(args, ended.stdout, ended.stderr)
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    return runs


@pytest.fixture
def shop(database: ScratchDatabase) -> Shop:
    """A database with three flows: a diamond, a map of the input, and a job."""
    made = Shop(database)
    made.deploy()
    return made


@pytest.fixture
def here(pgflowd: Callable[..., Ended], database: ScratchDatabase) -> Callable[..., Ended]:
    """Run a command line here, on the database of the test."""
    return lambda *args: pgflowd(*args, "--database-url", database.dsn)


@pytest.fixture
def project(elsewhere: Path) -> Path:
    """A project in the current directory, with the flows of the shop."""
    (elsewhere / "pgflowd.toml").write_text('[pgflowd]\nflows = ["shop_flows"]\n')
    (elsewhere / "shop_flows.py").write_text(MODULE)
    return elsewhere
