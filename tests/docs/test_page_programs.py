"""The Python of each page is one program, whose tests pass."""

from __future__ import annotations

import pytest
from support.pages import ROOT, blocks_of, executed

PAGES = {page.stem: f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
PROGRAMS = {name: page for name, page in PAGES.items() if blocks_of(page, "python")}
WITH_OWN_TESTS = {"applications", "django", "testing", "web"}  # several programs each
WITH_TESTS = [
    name
    for name in PROGRAMS.keys() - WITH_OWN_TESTS
    if "def test_" in (ROOT / PROGRAMS[name]).read_text()
]


@pytest.mark.parametrize("name", sorted(WITH_TESTS))
def test_the_tests_of_the_page_pass(name: str) -> None:
    tests = [value for key, value in executed(PROGRAMS[name]).items() if key.startswith("test_")]

    for test in tests:
        test()
