"""Draws how runs ended lately, as a small chart that stands beside its numbers."""

from __future__ import annotations

from collections.abc import Sequence

from pgflowd.core.documents.statistics import RunBucket
from pgflowd.web.svg_element import Picture, element
from pgflowd.web.text import number

_BAR, _GAP, _HEIGHT = 5, 1, 24
_LEAST = 2  # the height of a bar that is not zero


def spark(buckets: Sequence[RunBucket]) -> Picture:
    """A bar for each bucket, the oldest first: failures on top of what completed."""
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
    markup = element(
        "svg",
        *drawn,
        class_="spark",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{number(ok)} runs completed, {number(failed)} failed",
    )
    return Picture(markup)
