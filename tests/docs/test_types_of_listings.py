"""mypy, strictly, and pyright accept the listings of applications."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT, blocks_of

# of a page the first so many listings make one module; others stand in files of their own
PAGES = {"applications": 2, "testing": 3, "web": 7}
CONFIG = "[mypy]\nstrict = true\n[mypy-asyncpg.*]\nignore_missing_imports = true\n"


@pytest.fixture(scope="module")
def listings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("listings")
    for page, count in PAGES.items():
        blocks = blocks_of(f"docs/{page}.md", "python")
        (directory / f"{page}_page.py").write_text("\n".join(blocks[:count]))
    (directory / "mypy.ini").write_text(CONFIG)
    return directory


PYRIGHT = str(ROOT / "tests/npm/node_modules/pyright/index.js")
CHECKERS = [[sys.executable, "-m", "mypy"], ["node", PYRIGHT, "--pythonpath", sys.executable]]


@pytest.mark.parametrize("checker", CHECKERS, ids=["mypy", "pyright"])
def test_a_type_checker_accepts_the_listings(listings: Path, checker: list[str]) -> None:
    names = [f"{page}_page.py" for page in PAGES]
    done = subprocess.run(
        [*checker, *names],
        cwd=listings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_a_connection_that_no_client_takes_is_an_error_of_types(listings: Path) -> None:
    (listings / "wrong.py").write_text(
        "import sqlite3\nfrom pgflowd import Client\n"
        "Client().start_flow('orders', {}, conn=sqlite3.connect(':memory:'))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "wrong.py"], cwd=listings, capture_output=True, text=True
    )
    assert 'has incompatible type "sqlite3.Connection"' in done.stdout, done.stdout
