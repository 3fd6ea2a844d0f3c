"""
Draws the newest runs of a flow as a grid: a row for each step, a column for each run, the newest on
the right. So one sees whether runs fail, and where.
"""

from __future__ import annotations

from markupsafe import Markup

from pgflowd.core.documents.flow_grid import FlowGrid, GridRun
from pgflowd.core.statuses import StepStatus
from pgflowd.core.text import cut, duration, short_id
from pgflowd.web.svg_element import Picture, element, picture_of
from pgflowd.web.text import status_class, status_word

# in pixels
_CELL = 24  # as large as a target must be
_BOX = 18  # what is seen of a cell
_LETTER = 7.9  # of a name
_NAME_LETTERS = 28  # the longest name that is not cut
MAX_STEPS = 100  # of a flow; further ones are on the pages of its runs


def run_grid(grid: FlowGrid, link: str) -> Picture:
    """The grid; the address of a run is `link` and its id."""
    steps = grid.steps[:MAX_STEPS]
    left = round(_LETTER * max((min(len(step), _NAME_LETTERS) for step in steps), default=0)) + 14
    names = [
        element(
            "text", cut(step, _NAME_LETTERS), element("title", step), class_="name", x=2,
            y=row * _CELL + 16,
        )
        for row, step in enumerate(steps)
    ]  # fmt: skip
    runs = [
        _column(run, steps, left + column * _CELL) for column, run in enumerate(reversed(grid.runs))
    ]
    links = [
        element("a", *cells, href=f"{link}{run.run_id}", aria_label=_label(run))
        for run, cells in zip(reversed(grid.runs), runs, strict=True)
    ]
    width, height = left + len(runs) * _CELL, len(steps) * _CELL
    head = element("g", *names, aria_hidden="true")
    return Picture(picture_of("run-grid", width, height, "Newest runs", head, *links))


def _column(run: GridRun, steps: list[str], x: int) -> list[Markup]:
    """The steps of a run, below each other; a version of the flow may lack some."""
    cells = [
        element("title", _label(run)),
        element("rect", class_="whole", x=x, width=_CELL, height=len(steps) * _CELL, rx=4),
    ]
    for row, step in enumerate(steps):
        status = run.steps.get(step)
        if status is None:
            continue
        y, inset = row * _CELL, (_CELL - _BOX) / 2
        box = element("rect", x=x + inset, y=y + inset, width=_BOX, height=_BOX, rx=4)
        sign = element("text", status.mark.sign, x=x + _CELL / 2, y=y + _CELL / 2 + 4)
        title = element("title", f"{step}: {status_word(status)}")
        cells.append(element("g", title, box, sign, class_=status_class(status)))
    return cells


def _label(run: GridRun) -> str:
    """Such as `run 7f3a9c12, failed after 2s: charge`."""
    took = ""
    if run.ended_at is not None:
        took = f" after {duration((run.ended_at - run.started_at).total_seconds())}"
    failed = [step for step, status in run.steps.items() if status is StepStatus.FAILED]
    where = f": {', '.join(failed)}" if failed else ""
    return f"run {short_id(run.run_id)}, {status_word(run.status)}{took}{where}"
