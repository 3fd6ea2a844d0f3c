"""A page about a code on a terminal, and lists of codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pgflowd.cli.terminal.markdown_view import block_lines
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.error_pages import SEE_ALSO, ErrorPage, PageSection, group_of
from pgflowd.errors import TITLES


def page_lines(page: ErrorPage, screen: Screen) -> Iterator[str]:
    yield from code_line(page.code, screen, bold=True)
    for section in page.sections:
        yield from _section_lines(section, screen)
    if page.related or page.pages:
        yield from ("", screen.paint(SEE_ALSO, None, bold=True))
    for code in page.related:
        yield from code_line(code, screen, indent=2)
    for name in page.pages:
        yield f"  pgflowd docs {name.removeprefix('docs/').removesuffix('.md')}"


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
    yield ""
    if section.title:
        yield screen.paint(section.title, None, bold=True)
    yield from block_lines(section.blocks, screen)
