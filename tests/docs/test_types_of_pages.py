"""mypy, strictly, and pyright accept the Python of the pages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT, blocks_of, pages_with
from support.walk import WALKED

PROGRAMS = {
    Path(page).stem: page
    for page in pages_with("python", "start", "guides", "operate")
    if page not in WALKED
}
# what is no program: the same flow on Monday and on Tuesday, a project of a library without types,
# excerpts
OTHERS = {"changing-flows", "django", "observe", "dashboard"}
# of these pages the first so many listings make one; others stand in files of their own
FIRST = {"applications": 2, "testing": 3, "typed-handlers": 3, "web": 7}
READ_BY_PYRIGHT = [f"{name.replace('-', '_')}_page.py" for name in FIRST]
CONFIG = """
[mypy]
strict = true
[mypy-asyncpg.*]
ignore_missing_imports = true
"""
WRONG = """
import sqlite3
from pgflowd import Client
Client().start_flow("orders", {}, conn=sqlite3.connect(":memory:"))
"""
PYRIGHT = str(ROOT / "tests/npm/node_modules/pyright/index.js")


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages")
    for name, page in {"readme": "README.md", **PROGRAMS}.items():
        blocks = blocks_of(page, "python")[: FIRST.get(name)]
        if name not in FIRST:
            blocks = [block for block in blocks if "pgflow_db" not in block]  # it has no type
        if name not in OTHERS:
            (directory / f"{name.replace('-', '_')}_page.py").write_text("\n\n".join(blocks))
    (directory / "models_page.py").write_text(blocks_of(PROGRAMS["typed-handlers"], "python")[3])
    (directory / "mypy.ini").write_text(CONFIG)
    return directory


def test_mypy_accepts_them_and_no_connection_that_no_client_takes(programs: Path) -> None:
    (programs / "wrong.py").write_text(WRONG)

    lines = _checked(programs, sys.executable, "-m", "mypy", ".").splitlines()

    errors = [line for line in lines if ": error: " in line]
    assert [line.partition(":")[0] for line in errors] == ["wrong.py"], "\n".join(lines)
    assert 'has incompatible type "sqlite3.Connection"' in errors[0]


def test_pyright_accepts_those_of_other_libraries(programs: Path) -> None:
    command = ["node", PYRIGHT, "--pythonpath", sys.executable, *READ_BY_PYRIGHT, "models_page.py"]

    assert "\n0 errors, " in f"\n{_checked(programs, *command)}"


def _checked(directory: Path, *command: str) -> str:
    """What a type checker says."""
    done = subprocess.run(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    return done.stdout
