"""A page about a code on a terminal, and lists of codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.error_pages import (
    SEE_ALSO,
    BlockKind,
    ErrorPage,
    PageBlock,
    PageSection,
    group_of,
)
from pgflowd.errors import TITLES


def page_lines(page: ErrorPage, screen: Screen) -> Iterator[str]:
    yield from code_line(page.code, screen, bold=True)
    for section in page.sections:
        yield from _section_lines(section, screen)
    if page.related or page.pages:
        yield from ("", screen.paint(SEE_ALSO, None, bold=True))
    for code in page.related:
        yield from code_line(code, screen, indent=2)
    yield from (f"  {name}" for name in page.pages)


def code_lines(codes: Iterable[str], screen: Screen) -> Iterator[str]:
    """Codes with their titles, below what they are about."""
    groups: dict[str, list[str]] = {}
    for code in codes:
        groups.setdefault(group_of(code), []).append(code)
    for number, (group, members) in enumerate(groups.items()):
        if number:
            yield ""
        yield screen.paint(group, None, bold=True)
        for code in members:
            yield from code_line(code, screen, indent=2)


def code_line(code: str, screen: Screen, *, indent: int = 0, bold: bool = False) -> list[str]:
    painted = screen.paint(code, "yellow" if code.startswith("W") else "red", bold=True)
    head = f"{' ' * indent}{painted}  "
    lines = screen.wrapped(TITLES[code], head=head, indent=indent + 6, whole=True)
    return [screen.paint(line, None, bold=True) for line in lines] if bold else lines


def _section_lines(section: PageSection, screen: Screen) -> Iterator[str]:
    if section.title:
        yield from ("", screen.paint(section.title, None, bold=True))
    before: PageBlock | None = None
    for block in section.blocks:
        is_new_part = before is None or BlockKind.ITEM not in (before.kind, block.kind)
        if is_new_part and not (before is None and section.title):
            yield ""
        yield from _block_lines(block, screen)
        before = block


def _block_lines(block: PageBlock, screen: Screen) -> Iterator[str]:
    match block.kind:
        case BlockKind.TEXT:
            yield from screen.wrapped(block.text, whole=True)
        case BlockKind.ITEM:
            yield from screen.wrapped(block.text, head="- ", indent=2, whole=True)
        case BlockKind.CODE:  # stays whole, so that it can be copied
            yield from (f"    {line}".rstrip() for line in block.text.splitlines())
        case BlockKind.PRINTED:
            for line in block.text.splitlines():
                pad = 4 + len(line) - len(line.lstrip())
                yield from screen.wrapped(line.lstrip(), head=" " * pad, indent=pad, whole=True)
