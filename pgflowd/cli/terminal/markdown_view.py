"""The blocks of a page on a terminal, as `pgflowd docs` and `pgflowd explain` show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgflowd.cli.terminal.markdown_table import table_lines
from pgflowd.cli.terminal.markdown_text_view import TopicOf, shown, text_lines
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.markdown import BlockKind, PageBlock


def block_lines(
    blocks: Iterable[PageBlock], screen: Screen, topic_of: TopicOf = lambda _: None
) -> Iterator[str]:
    """The lines of blocks, with empty ones between what does not belong together."""
    before: PageBlock | None = None
    for block in blocks:
        if before is not None and not _is_tight(before, block):
            yield ""
        yield from _lines_of(block, screen, topic_of)
        before = block


def is_whole(block: PageBlock) -> bool:
    """Whether no line of a block is wrapped: code is to be copied, a picture to be seen."""
    return block.kind is BlockKind.CODE or any("─" <= char <= "╿" for char in block.text)


def _is_tight(before: PageBlock, block: PageBlock) -> bool:
    """Whether a block follows the one before it without an empty line."""
    is_prose = block.kind in (BlockKind.TEXT, BlockKind.ITEM)
    if before.kind is BlockKind.HEADING:
        return is_prose and before.level > 1
    return block.kind is BlockKind.ITEM and before.kind in (BlockKind.TEXT, BlockKind.ITEM)


def _lines_of(block: PageBlock, screen: Screen, topic_of: TopicOf) -> Iterator[str]:
    pad = " " * block.indent
    match block.kind:
        case BlockKind.HEADING:
            head = "#" * block.level + " " if block.level > 1 else ""
            yield from text_lines(block.text, screen, topic_of, head=head, bold=True)
        case BlockKind.TEXT:
            yield from text_lines(block.text, screen, topic_of, head=pad, indent=block.indent)
        case BlockKind.ITEM:
            head = f"{pad}{block.mark} "
            yield from text_lines(block.text, screen, topic_of, head=head, indent=len(head))
        case BlockKind.TABLE:
            yield from table_lines(block.rows, screen, topic_of)
        case _ if is_whole(block):
            for line in shown(block.text, screen).splitlines():
                yield f"    {pad}{line}".rstrip()
        case _:
            for line in shown(block.text, screen).splitlines():
                begin = 4 + block.indent + len(line) - len(line.lstrip())
                head = " " * begin
                yield from screen.wrapped(line.lstrip(), head=head, indent=begin, whole=True)
