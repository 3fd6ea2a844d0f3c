"""
Draws the tasks of a map as a strip of cells. Each leads to its tasks, and has the colour of the one
that needs most attention.
"""

from __future__ import annotations

from markupsafe import Markup

from pgflowd.core.documents.run_tasks import StepStrip, StripCell
from pgflowd.core.statuses import TaskStatus
from pgflowd.web.svg_element import Picture, element
from pgflowd.web.text import number, status_class, status_word

_FEW = 100  # with so many there is room between cells
_DULL = (TaskStatus.COMPLETED, TaskStatus.SKIPPED, TaskStatus.QUEUED, TaskStatus.READY, None)


def task_strip(strip: StepStrip, link: str) -> Picture:
    """
    The strip of a map. The address of a cell is `link` and the index before its first task.

    Who uses the keyboard comes to the cells that failed or go on. The others are in the table, too.
    """
    count = len(strip.cells)
    cells = [_cell(cell, index, count, link) for index, cell in enumerate(strip.cells)]
    markup = element(
        "svg",
        *cells,
        class_="strip",
        xmlns="http://www.w3.org/2000/svg",
        width="100%",
        height=32,
        role="group",
        aria_label=f"Tasks of {strip.step}",
    )
    return Picture(markup)


def _cell(cell: StripCell, index: int, count: int, link: str) -> Markup:
    worst, title = cell.worst, title_of(cell)
    colour = status_class(worst) if worst else "plain"
    rect = element(
        "rect",
        element("title", title),
        class_=f"{colour} few" if count <= _FEW else colour,
        x=f"{100 * index / count:.5f}%",
        width=f"{100 / count:.5f}%",
        height="100%",
    )
    return element(
        "a",
        rect,
        href=f"{link}{cell.first - 1}",
        aria_label=title,
        tabindex=-1 if worst in _DULL else None,
    )


def title_of(cell: StripCell) -> str:
    """The tasks, and how many of them have each status."""
    is_one = cell.first == cell.last
    tasks = f"task {number(cell.first)}" if is_one else (
        f"tasks {number(cell.first)}\N{EN DASH}{number(cell.last)}"
    )  # fmt: skip
    told = [
        status_word(status) if is_one else f"{number(cell.counts[status])} {status_word(status)}"
        for status in TaskStatus
        if cell.counts.get(status)
    ]
    return f"{tasks}: {', '.join(told)}" if told else tasks
