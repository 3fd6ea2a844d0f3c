"""
`pgflowd docs`: shows a page of the documentation, or its contents, or where words stand in it.

The pages are those of `docs`. It needs neither a config nor a database.
"""

from __future__ import annotations

from collections.abc import Sequence

import click
from click.shell_completion import CompletionItem

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import NothingFound
from pgflowd.cli.groups import Command
from pgflowd.cli.params import ParamType
from pgflowd.cli.terminal.documentation_view import contents_lines, found_lines, page_lines
from pgflowd.cli.terminal.pager import show
from pgflowd.core.documents.documentation import INDEX, ListedPage, TableOfContents, found_in
from pgflowd.core.redact import one_line
from pgflowd.errors import TITLES
from pgflowd.host.pages import page_text


class TopicParam(ParamType):
    """A topic, or words of a text."""

    name = "topic"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [
            CompletionItem(page.topic, help=page.title)
            for page in TableOfContents(page_text(INDEX)).pages
            if page.topic.startswith(incomplete)
        ]


@click.command(cls=Command)
@click.argument("topic", nargs=-1, type=TopicParam(), metavar="[TOPIC | WORDS]")
@pass_app
def docs(app: App, topic: tuple[str, ...]) -> None:
    """Show a page of the documentation; it needs no network.

    Without a topic it lists all pages; of words, the pages that have them all.

    \b
    Example: pgflowd docs waits
             pgflowd docs time zone
    """
    contents, words = TableOfContents(page_text(INDEX)), " ".join(topic).strip()
    if not words:
        _show_contents(app, contents)
    elif page := contents.find(words):
        _show_page(app, contents, page)
    else:
        _show_found(app, contents, words)


def _show_contents(app: App, contents: TableOfContents) -> None:
    if app.json:
        app.print_document(parts=[part.to_json() for part in contents.parts])
        return
    show(list(contents_lines(contents, app.out)), app.out)
    app.note(
        "`pgflowd docs TOPIC` shows a page, `pgflowd docs WORDS` finds the pages with these words"
    )


def _show_page(app: App, contents: TableOfContents, page: ListedPage) -> None:
    text = page_text(page.path)
    if app.json:
        part = contents.part_of(page).title
        app.print_document(topic=page.topic, title=page.title, part=part, text=text)
    else:
        show(list(page_lines(text, page, contents, app.out)), app.out)


def _show_found(app: App, contents: TableOfContents, words: str) -> None:
    if words.upper() in TITLES:
        raise NothingFound(f"`pgflowd explain {words.upper()}` shows the page of a code")
    found = found_in([(page, page_text(page.path)) for page in contents.pages], words)
    if not found:
        raise NothingFound(_nothing_found(words, contents.nearest(words)))
    if app.json:
        app.print_document(found=[each.to_json() for each in found])
        return
    show(list(found_lines(found, app.out)), app.out)
    app.note(
        "`pgflowd docs TOPIC` shows a page, `pgflowd explain WORDS` seeks in those about codes"
    )


def _nothing_found(words: str, nearest: Sequence[ListedPage]) -> str:
    shown = one_line(words, 60)
    if nearest:
        listed = ", ".join(f"{page.topic} ({page.title})" for page in nearest)
        return f"there is no topic '{shown}'; the nearest are {listed}"
    return f"no page has '{shown}'; `pgflowd docs` lists all pages"
