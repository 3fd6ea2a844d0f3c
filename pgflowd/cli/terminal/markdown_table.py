"""
A table of a page on a terminal: columns whose cells are wrapped, or one row below the other.

`column_widths` gives each column what it needs, or its share of the terminal. Where not even the
longest words fit beside each other, each row becomes lines with the titles of its cells.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from pgflowd.cli.terminal.markdown_text_view import TopicOf, text_lines
from pgflowd.cli.terminal.screen import Screen, columns
from pgflowd.core.statuses import Mark

_GAP = "  "
_LEAST_WIDTH = 20  # columns of a cell that is wrapped, as of all that `Screen.wrapped` does
_RULE = Mark("─", "-")  # below the titles


def table_lines(rows: Sequence[Sequence[str]], screen: Screen, topic_of: TopicOf) -> Iterator[str]:
    """The first row has the titles."""
    whole = [[_line(cell, screen, topic_of) for cell in row] for row in rows]
    needed = [max(map(columns, column)) for column in zip(*whole, strict=True)]
    longest = [
        max(columns(word) for cell in column for word in [*cell.split(), ""])
        for column in zip(*whole, strict=True)
    ]
    widths = column_widths(needed, longest, screen.width)
    if widths is None:
        yield from _stacked(rows, screen, topic_of)
        return
    for number, row in enumerate(rows):
        cells = [
            text_lines(cell, screen, topic_of, width=width, bold=number == 0)
            for cell, width in zip(row, widths, strict=True)
        ]
        if any(cell != [""] for cell in cells):
            yield from _side_by_side(cells, widths)
        if number == 0 and any(row):
            rule = screen.sign(_RULE)
            yield _GAP.join(rule * width for width in widths)


def column_widths(
    needed: Sequence[int], longest: Sequence[int], room: int | None
) -> list[int] | None:
    """
    How wide each column is, of those that need so much and have words so long; None: too narrow.

    A column that needs less than an equal share of the room gets what it needs.
    """
    if room is None:
        return list(needed)
    left = room - len(_GAP) * (len(needed) - 1)
    least = [min(need, max(word, _LEAST_WIDTH)) for need, word in zip(needed, longest, strict=True)]
    if sum(least) > left:
        return None
    widths = list(least)
    left -= sum(least)
    while left and (wanting := [i for i, width in enumerate(widths) if width < needed[i]]):
        narrowest = min(wanting, key=lambda i: widths[i])
        widths[narrowest] += 1
        left -= 1
    return widths


def _side_by_side(cells: Sequence[Sequence[str]], widths: Sequence[int]) -> Iterator[str]:
    for parts in zip_longest(*cells, fillvalue=""):
        padded = [
            part + " " * (width - columns(part)) for part, width in zip(parts, widths, strict=True)
        ]
        yield _GAP.join(padded).rstrip()


def _stacked(rows: Sequence[Sequence[str]], screen: Screen, topic_of: TopicOf) -> Iterator[str]:
    titles, *others = rows
    for number, row in enumerate(others):
        if number:
            yield ""
        for place, (title, cell) in enumerate(zip(titles, row, strict=True)):
            if cell:
                text, pad = f"{title}: {cell}" if title else cell, "  " if place else ""
                indent = len(pad)
                yield from text_lines(
                    text, screen, topic_of, head=pad, indent=indent, bold=not place
                )


def _line(text: str, screen: Screen, topic_of: TopicOf) -> str:
    return text_lines(text, screen, topic_of, width=100_000)[0]
