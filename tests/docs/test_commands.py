"""docs/reference/programs.md names every exit code."""

from __future__ import annotations

from pathlib import Path

from pgflowd.core.exit_codes import ExitCode

PAGE = (Path(__file__).parents[2] / "docs/reference/programs.md").read_text("utf-8")


def test_every_exit_code_is_named():
    for code in ExitCode:
        assert f"| {code.value} |" in PAGE
