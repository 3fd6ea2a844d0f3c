"""The Python of docs/guides/progress.md tells what the page says."""

from __future__ import annotations

from support.pages import executed

from pgflowd.testing import run_flow


def test_the_step_of_the_page_tells_of_each_page() -> None:
    flow = executed("docs/guides/progress.md")["flow"]

    run = run_flow(flow, {"urls": ["a", "b"]})

    told = {"done": 2, "total": 2, "text": "pages", "detail": {"last": "b"}}
    assert run.steps["pages"].progress == told
