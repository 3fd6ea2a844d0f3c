"""The Python of docs/quarantine.md: the options of its step are those that the page names."""

from __future__ import annotations

from typing import Any

from support.pages import blocks_of


def test_the_step_of_the_page_is_set_aside_after_three_stalls() -> None:
    page: dict[str, Any] = {"__name__": "images"}
    for block in blocks_of("docs/quarantine.md", "python"):
        exec(block, page)

    (step,) = page["images"].shape()["steps"]

    assert page["images"].check() == []
    assert step["options"] == {"crashLimit": 3, "onCrashLimit": "quarantine"}
