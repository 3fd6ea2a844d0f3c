"""The Python of docs/child-runs.md: its flow, its test, and its types."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

from support.pages import ROOT, blocks_of

PAGE = "docs/child-runs.md"


def test_the_test_of_the_page_passes() -> None:
    page: dict[str, Any] = {"__name__": "child_runs"}
    for block in blocks_of(PAGE, "python"):
        exec(block, page)

    page["test_what_was_loaded_is_returned"]()


def test_mypy_strict_accepts_the_page(tmp_path) -> None:
    file = tmp_path / "child_runs.py"
    file.write_text("\n\n".join(blocks_of(PAGE, "python")), "utf-8")

    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(file)],
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip

    assert "Success" in checked.stdout, checked.stdout
