"""Analyze a website: a diamond, two steps side by side."""

from __future__ import annotations

import time
from typing import Any

from pgflowd import Flow

flow = Flow("analyze_website", max_attempts=3, base_delay=1, timeout=10)

PAGE = "Durable workflows are a delight: they finish what they began, and they tell you how."
GOOD, BAD = {"delight", "durable", "finish"}, {"lost", "stuck", "twice"}


@flow.step
def website(run: dict[str, str]) -> dict[str, Any]:
    """Stand in for a download."""
    time.sleep(0.3)
    return {"url": run["url"], "status": 200, "content": PAGE}


@flow.step
def sentiment(website: dict[str, Any]) -> dict[str, Any]:
    """Weigh the words."""
    time.sleep(0.4)
    words = {word.strip(".,:").lower() for word in website["content"].split()}
    score = len(words & GOOD) - len(words & BAD)
    return {"label": "positive" if score > 0 else "negative", "score": score}


@flow.step
def summary(website: dict[str, Any]) -> str:
    """Keep the text before the colon."""
    time.sleep(0.3)
    return str(website["content"]).partition(":")[0]


@flow.step
def save_to_db(sentiment: dict[str, Any], summary: str) -> dict[str, Any]:
    """Stand in for an insert."""
    return {"id": 1, "label": sentiment["label"], "summary": summary}
