"""Draws small charts, which stand in rows of tables beside their numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pgflowd.core.documents.statistics import RunBucket
from pgflowd.web.svg_element import Picture, element
from pgflowd.web.text import number

_BAR, _GAP, _HEIGHT = 5, 1, 24
_LEAST = 2  # the height of a bar that is not zero


def spark(buckets: Sequence[RunBucket], what: str = "runs") -> Picture:
    """A bar for each bucket, the oldest first: failures in red, on top of what ended well."""
    most = max((bucket.ok + bucket.failed for bucket in buckets), default=0)
    drawn = []
    for index, bucket in enumerate(buckets):
        x, bottom = index * (_BAR + _GAP), float(_HEIGHT)
        for class_, count in (("ok", bucket.ok), ("failed", bucket.failed)):
            if count:
                height = round(max((_HEIGHT - _LEAST) * count / most, _LEAST), 1)
                bottom -= height
                drawn.append(
                    element("rect", class_=class_, x=x, y=bottom, width=_BAR, height=height)
                )
        if bottom == _HEIGHT:
            drawn.append(element("rect", class_="none", x=x, y=_HEIGHT - 1, width=_BAR, height=1))
    ok, failed = (sum(each) for each in zip(*buckets, strict=True)) if buckets else (0, 0)
    width = max(len(buckets) * (_BAR + _GAP) - _GAP, 1)
    label = f"{number(ok)} {what} ended well, {number(failed)} failed"
    return _chart("spark", label, width, _HEIGHT, drawn)


def load_bar(running: int, capacity: int) -> Picture:
    """How much of a capacity is in use."""
    share = min(running / capacity, 1) if capacity else 0
    drawn = [
        element("rect", class_="whole", width=100, height=8),
        element("rect", class_="running", width=100 * share, height=8),
    ]
    label = f"{number(running)} of {number(capacity)} running"
    return _chart("load full" if share == 1 else "load", label, 100, 8, drawn)


def _chart(class_: str, label: str, width: int, height: int, drawn: Sequence[str]) -> Picture:
    markup = element(
        "svg",
        *drawn,
        class_=class_,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
    )
    return Picture(markup)
