"""The Python of docs/undo.md: its flow, its tests, and its types."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from support.pages import ROOT, blocks_of

PAGE = "docs/undo.md"


def test_the_tests_of_the_page_pass() -> None:
    page: dict[str, Any] = {"__name__": "undo"}
    for block in blocks_of(PAGE, "python"):
        exec(block, page)

    tests = [value for name, value in page.items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()


def test_mypy_strict_accepts_the_page(tmp_path) -> None:
    file = tmp_path / "undo_page.py"
    file.write_text("\n\n".join(blocks_of(PAGE, "python")), "utf-8")

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip

    assert "Success" in checked.stdout, checked.stdout
