"""Resize images: a map, one task for each of 100 images, and a step that has them all."""

from __future__ import annotations

import time
from typing import Any

from pgflowd import Flow

flow = Flow("resize_images", timeout=30)


@flow.step
def list_images(run: dict[str, int]) -> list[dict[str, Any]]:
    """Stand in for a directory."""
    return [{"name": f"{number:03}.jpg", "width": 4000} for number in range(run["count"])]


@flow.map(over="list_images")
def resize(item: dict[str, Any]) -> dict[str, Any]:
    """Stand in for the work on one image."""
    time.sleep(0.15)
    return {**item, "width": item["width"] // 10}


@flow.step
def contact_sheet(resize: list[dict[str, Any]]) -> dict[str, int]:
    """Put all of them, in order, on one page."""
    return {"images": len(resize), "pixels": sum(image["width"] for image in resize)}
