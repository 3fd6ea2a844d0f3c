"""The Python of each page is one program: its tests pass, and mypy accepts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.pages import ROOT, blocks_of, executed

PAGES = {page.stem: f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
PROGRAMS = {name: page for name, page in PAGES.items() if blocks_of(page, "python")}
BEFORE_AND_AFTER = {"changing-flows"}  # shows the same flow twice, on Monday and on Tuesday
OF_OTHERS = {
    "applications",
    "django",
    "testing",
    "web",
}  # several programs each, with tests of their own
WITH_TESTS = [
    name
    for name in PROGRAMS.keys() - OF_OTHERS
    if "def test_" in (ROOT / PROGRAMS[name]).read_text()
]


@pytest.mark.parametrize("name", sorted(WITH_TESTS))
def test_the_tests_of_the_page_pass(name: str) -> None:
    tests = [value for key, value in executed(PROGRAMS[name]).items() if key.startswith("test_")]

    for test in tests:
        test()


def test_mypy_strict_accepts_the_pages(tmp_path: Path) -> None:
    programs = {"readme": "README.md", **PROGRAMS}
    for name in programs.keys() - BEFORE_AND_AFTER - OF_OTHERS:
        blocks = blocks_of(programs[name], "python")
        typed = [block for block in blocks if "pgflow_db" not in block]  # a fixture has no type
        file = tmp_path / f"{name.replace('-', '_')}_page.py"
        file.write_text("\n\n".join(typed), "utf-8")

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(tmp_path)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip

    assert "Success" in checked.stdout, checked.stdout
