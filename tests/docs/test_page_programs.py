"""The Python of each page is one program, whose tests pass."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.pages import ROOT, executed, pages_with
from support.walk import WALKED

PROGRAMS = {
    Path(page).stem: page
    for page in pages_with("python", "start", "guides", "operate")
    if page not in WALKED
}
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
