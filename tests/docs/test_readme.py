"""Every Python block of the README runs, as one program."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.page_workers import Workers, libpq_variables

README = Path(__file__).parents[2] / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def blocks() -> Iterator[str]:
    """Each block, moved down to the line where it stands."""
    text = README.read_text("utf-8")
    for match in BLOCK.finditer(text):
        yield "\n" * text[: match.start(1)].count("\n") + match[1]


@pytest.fixture
def libpq_environment(database, monkeypatch) -> None:
    for name, value in libpq_variables(database.dsn).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def empty_of_runs(server) -> Iterator[Any]:
    """Another scratch database, as `pgflow_db` gives one to each test of a user."""
    with server.database() as fresh:
        yield fresh


def test_all_blocks_run_one_after_the_other(database, libpq_environment, empty_of_runs):
    connection = database.connect()
    connection.execute("create table pages (url text)")
    readme: dict[str, Any] = {"__name__": "readme"}
    workers: Workers | None = None

    for block in blocks():
        code = compile(block, str(README), "exec")
        if workers is None and "Client()" in block:
            workers = Workers(connection, [readme["flow"], readme["orders"]])
        if workers is None:
            exec(code, readme)
        else:
            with workers:
                exec(code, readme)

    tests = [value for name, value in readme.items() if name.startswith("test_")]
    assert len(tests) >= 4
    for test in tests:
        fixtures = dict.fromkeys(inspect.signature(test).parameters, empty_of_runs)
        test(**fixtures)
    assert connection.execute("select count(*) from pages").fetchone() == (1,)
