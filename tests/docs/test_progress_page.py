"""The Python of docs/progress.md tells what the page says."""

from __future__ import annotations

from typing import Any

from support.pages import blocks_of

from pgflowd.testing import run_flow


def test_the_step_of_the_page_tells_of_each_page() -> None:
    page: dict[str, Any] = {"__name__": "crawl"}
    for block in blocks_of("docs/progress.md", "python"):
        exec(block, page)

    run = run_flow(page["flow"], {"urls": ["a", "b"]})

    told = {"done": 2, "total": 2, "text": "pages", "detail": {"last": "b"}}
    assert run.steps["pages"].progress == told
