"""The documentation on a terminal: its contents, a page, and what a search has found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from pgflowd.cli.terminal.markdown_text_view import shown
from pgflowd.cli.terminal.markdown_view import block_lines
from pgflowd.cli.terminal.screen import Screen, columns
from pgflowd.core.documents.documentation import FoundText, ListedPage, TableOfContents
from pgflowd.core.documents.markdown import blocks_of
from pgflowd.core.documents.markdown_text import page_of_link

_WIDE = 72  # columns from which topics have a column of their own
_SHORT = 24  # columns; a longer topic stands on a line of its own


def contents_lines(contents: TableOfContents, screen: Screen) -> Iterator[str]:
    topics = [page.topic for page in contents.pages if len(page.topic) <= _SHORT]
    indent = max(map(len, topics), default=0) + 4
    if screen.width is not None and screen.width < _WIDE:
        indent = 6
    for number, part in enumerate(contents.parts):
        if number:
            yield ""
        yield screen.paint(shown(part.title, screen), None, bold=True)
        for page in part.pages:
            head = f"  {screen.paint(page.topic, 'cyan')}"
            head += " " * max(indent - columns(head), 2)
            text = shown(page.about or page.title, screen)
            yield from screen.wrapped(text, head=head, indent=indent, whole=True)


def page_lines(
    text: str, page: ListedPage, contents: TableOfContents, screen: Screen
) -> Iterator[str]:
    def topic_of(target: str) -> str | None:
        path = page_of_link(page.path, target)
        return contents.topic_at(path) if path and path != page.path else None

    return block_lines(blocks_of(text), screen, topic_of)


def found_lines(found: Iterable[FoundText], screen: Screen) -> Iterator[str]:
    """The places of each page below its topic and title."""
    for number, (topic, places) in enumerate(groupby(found, lambda each: each.topic)):
        for place, each in enumerate(places):
            if not place:
                if number:
                    yield ""
                head = f"{screen.paint(topic, 'cyan', bold=True)}  "
                yield from screen.wrapped(
                    shown(each.title, screen), head=head, indent=2, whole=True
                )
            text = shown(each.text, screen)
            head = f"  {shown(each.heading, screen)}: " if each.heading else "  "
            yield from screen.wrapped(text, head=head, indent=4, whole=True)
