"""
The Python of docs/operate/quarantine.md: the options of its step are those that the page names.
"""

from __future__ import annotations

from support.pages import executed


def test_the_step_of_the_page_is_set_aside_after_three_stalls() -> None:
    images = executed("docs/operate/quarantine.md")["images"]

    (step,) = images.shape()["steps"]

    assert images.check() == []
    assert step["options"] == {"crashLimit": 3, "onCrashLimit": "quarantine"}
