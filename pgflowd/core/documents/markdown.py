"""
The blocks of our pages: headings, paragraphs, lists, tables and code.

`blocks_of` reads the Markdown that pages of docs/ use, and no more. The texts of blocks keep the
marks within them, such as those of code and links; `core.documents.markdown_text` reads these.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated

from pgflowd.core.documents import Hidden

_FENCE = "```"
_HEADING = re.compile(r"(#{1,6}) +(.+)")
_ITEM = re.compile(r"( {0,3}(?:[-*]|\d{1,3}\.) +)(?=\S)")
_INTERRUPTS = re.compile(r" {0,3}(?:[-*]|1\.) +\S|#{1,6} |```|\|")  # ends a paragraph
_CELL_END = re.compile(r"(?<!\\)\|")
_RULE_OF_TITLES = re.compile(r"\|(?: *:?-+:? *\|)+ *")
_ANCHOR = re.compile(r'<a id="[^"]*"></a>')


class BlockKind(StrEnum):
    """What a part of a page is."""

    HEADING = "heading"
    TEXT = "text"
    ITEM = "item"  # of a list
    TABLE = "table"
    CODE = "code"  # to write or to type
    PRINTED = "printed"  # what pgflowd answers, and pictures made of letters


@dataclass(frozen=True)
class PageBlock:
    """`language` is that of code, else None: `console` has command lines behind `$`."""

    kind: Annotated[BlockKind, "what it is"]
    text: Annotated[str, "with code between backticks"]
    language: Annotated[str | None, "of code; `console` is typed behind `$`"] = None
    level: Hidden[int] = 0  # of a heading; 1 is the title of the page
    mark: Hidden[str] = "-"  # before an item: a dash, or its number with a dot
    indent: Hidden[int] = 0  # columns, of what stands within an item
    rows: Hidden[tuple[tuple[str, ...], ...]] = ()  # of a table; the first one has the titles


def blocks_of(text: str) -> list[PageBlock]:
    """The blocks of a page or a part of one; ValueError says what no page may have."""
    return list(_blocks(_ANCHOR.sub("", text).splitlines()))


def _blocks(lines: Sequence[str]) -> Iterator[PageBlock]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
            continue
        if line.startswith(" " * 4):
            raise ValueError(f"code stands between {_FENCE} and {_FENCE}: {line.strip()}")
        if line.startswith(_FENCE):
            end = _end_of_code(lines, at)
            yield _code(line.removeprefix(_FENCE).strip(), lines[at + 1 : end])
            end += 1
        elif heading := _HEADING.fullmatch(line):
            end = at + 1
            yield PageBlock(BlockKind.HEADING, heading[2].strip(), level=len(heading[1]))
        elif line.startswith("|"):
            end = _end(lines, at, lambda each: each.startswith("|"))
            yield _table(lines[at:end])
        elif item := _ITEM.match(line):
            end = _end_of_item(lines, at, len(item[1]))
            yield from _item(item[1], lines[at:end])
        else:
            end = _end(lines, at, lambda each: bool(each.strip()) and not _INTERRUPTS.match(each))
            yield PageBlock(BlockKind.TEXT, _joined(lines[at:end]))
        at = end


def _end(lines: Sequence[str], begin: int, goes_on: Callable[[str], bool]) -> int:
    end = begin + 1
    while end < len(lines) and goes_on(lines[end]):
        end += 1
    return end


def _end_of_code(lines: Sequence[str], begin: int) -> int:
    for end in range(begin + 1, len(lines)):
        if lines[end].startswith(_FENCE):
            if lines[end].strip() != _FENCE:
                raise ValueError(f"a block ends with {lines[end]}")
            return end
    raise ValueError("a block does not end")


def _code(language: str, lines: Sequence[str]) -> PageBlock:
    if not language:
        raise ValueError("a block has no language")
    if language == "text":
        return PageBlock(BlockKind.PRINTED, "\n".join(lines))
    return PageBlock(BlockKind.CODE, "\n".join(lines), language)


def _table(lines: Sequence[str]) -> PageBlock:
    if len(lines) < 2 or not _RULE_OF_TITLES.fullmatch(lines[1]):
        raise ValueError(f"a table has no line of dashes below its titles: {lines[0]}")
    rows = [_CELL_END.split(line.strip())[1:-1] for line in (lines[0], *lines[2:])]
    if uneven := [row for row in rows if len(row) != len(rows[0])]:
        raise ValueError(
            f"a row has {len(uneven[0])} cells, its titles {len(rows[0])}: {uneven[0]}"
        )
    cells = tuple(tuple(cell.strip().replace("\\|", "|") for cell in row) for row in rows)
    return PageBlock(BlockKind.TABLE, "", rows=cells)


def _end_of_item(lines: Sequence[str], begin: int, indent: int) -> int:
    """Where an item ends: at the first line that is neither indented nor goes on with its text."""
    end = begin + 1
    while end < len(lines):
        line = lines[end]
        is_within = not line.strip() or line.startswith(" " * indent)
        goes_on = bool(lines[end - 1].strip()) and not (
            _ITEM.match(line) or _INTERRUPTS.match(line)
        )
        if not (is_within or goes_on):
            break
        end += 1
    return end


def _item(head: str, lines: Sequence[str]) -> Iterator[PageBlock]:
    """An item, and what stands within it."""
    indent = len(head)
    inner = [
        lines[0][indent:],
        *(line[indent:] if line.startswith(" " * indent) else line.lstrip() for line in lines[1:]),
    ]
    first, *rest = _blocks(inner)
    if first.kind is BlockKind.TEXT:
        yield PageBlock(BlockKind.ITEM, first.text, mark=_mark(head))
    else:
        yield PageBlock(BlockKind.ITEM, "", mark=_mark(head))
        rest = [first, *rest]
    yield from (replace(each, indent=each.indent + len(_mark(head)) + 1) for each in rest)


def _mark(head: str) -> str:
    return "-" if head.strip() == "*" else head.strip()


def _joined(lines: Sequence[str]) -> str:
    return " ".join(" ".join(lines).split())
