"""
`pgflowd docs`: shows a page of the documentation, or its contents, or where words stand in it.

The pages are those of `docs`. It needs neither a config nor a database.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, TypedDict

import click
from click.shell_completion import CompletionItem

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import NothingFound
from pgflowd.cli.groups import Command
from pgflowd.cli.params import ParamType
from pgflowd.cli.terminal.page_view import contents_lines, found_lines, show, show_page
from pgflowd.core.documents.documentation import (
    INDEX,
    ContentsPart,
    FoundText,
    ListedPage,
    TableOfContents,
    found_in,
)
from pgflowd.core.redact import one_line
from pgflowd.core.text import did_you_mean
from pgflowd.errors import TITLES
from pgflowd.host.pages import page_text


class DocumentParam(ParamType):
    """The name of a document."""

    name = "document"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        from pgflowd.cli.schemas import documents

        return [CompletionItem(name) for name in documents() if name.startswith(incomplete)]


class ListedParts(TypedDict):
    """`docs` without a topic prints it."""

    parts: Annotated[Sequence[ContentsPart], "the parts of the documentation"]


class ShownPage(TypedDict):
    """`docs TOPIC` prints it. Exit code 4 for a topic that does not exist."""

    topic: Annotated[str, "by which `docs TOPIC` shows it"]
    title: Annotated[str, "the title of the page"]
    part: Annotated[str, "the part of the documentation to which it belongs"]
    text: Annotated[str, "the page, as Markdown"]


class FoundTexts(TypedDict):
    """`docs WORDS` prints it. Exit code 4 for words that no page has."""

    found: Annotated[Sequence[FoundText], "where the words stand, the best places first"]


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


@click.command(cls=Command, prints={"": ListedParts | ShownPage | FoundTexts, "--schema": None})
@click.argument("topic", nargs=-1, type=TopicParam(), metavar="[TOPIC | WORDS]")
@click.option(
    "--schema", type=DocumentParam(), metavar="[NAME]", is_flag=False, flag_value="",
    help="The JSON Schema of what a command prints with --json, such as runs-show.",
)  # fmt: skip
@pass_app
def docs(app: App, topic: tuple[str, ...], schema: str | None) -> None:
    """Show a page of the documentation; it needs no network.

    Without a topic it lists all pages; of words, the pages that have them all.

    \b
    Example: pgflowd docs waits
             pgflowd docs time zone
             pgflowd docs --schema runs-list
    """
    if schema is not None:
        _show_schema(app, " ".join([schema, *topic]).strip().replace(" ", "-"))
        return
    contents, words = TableOfContents(page_text(INDEX)), " ".join(topic).strip()
    if not words:
        _show_contents(app, contents)
    elif page := contents.find(words):
        _show_page(app, contents, page)
    else:
        _show_found(app, contents, words)


def _show_schema(app: App, name: str) -> None:
    """Of a document; without a name those that there are."""
    from pgflowd.cli.schemas import documents
    from pgflowd.core.documents.schema import schema_of

    known = documents()
    if name in known:
        app.print_json(schema_of(known[name]))
    elif name:
        raise NothingFound(f"there is no document '{one_line(name, 60)}'; {_known(name, known)}")
    elif app.json:
        app.print_json(list(known))
    else:
        app.print("\n".join(known))


def _known(name: str, known: Iterable[str]) -> str:
    return did_you_mean(name, known) or f"these are: {', '.join(known)}"


def _show_contents(app: App, contents: TableOfContents) -> None:
    if app.json:
        app.print_document(ListedParts(parts=contents.parts))
        return
    show(contents_lines(contents, app.out), app.out)
    app.note(
        "`pgflowd docs TOPIC` shows a page, `pgflowd docs WORDS` finds the pages with these words"
    )


def _show_page(app: App, contents: TableOfContents, page: ListedPage) -> None:
    text = page_text(page.path)
    if app.json:
        part = contents.part_of(page).title
        app.print_document(ShownPage(topic=page.topic, title=page.title, part=part, text=text))
    else:
        show_page(text, app.out)


def _show_found(app: App, contents: TableOfContents, words: str) -> None:
    if words.upper() in TITLES:
        raise NothingFound(f"`pgflowd explain {words.upper()}` shows the page of a code")
    found = found_in([(page, page_text(page.path)) for page in contents.pages], words)
    if not found:
        raise NothingFound(_nothing_found(words, contents.nearest(words)))
    if app.json:
        app.print_document(FoundTexts(found=found))
        return
    show(found_lines(found, app.out), app.out)
    app.note(
        "`pgflowd docs TOPIC` shows a page, `pgflowd explain WORDS` seeks in those about codes"
    )


def _nothing_found(words: str, nearest: Sequence[ListedPage]) -> str:
    shown = one_line(words, 60)
    if nearest:
        listed = ", ".join(f"{page.topic} ({page.title})" for page in nearest)
        return f"there is no topic '{shown}'; the nearest are {listed}"
    return f"no page has '{shown}'; `pgflowd docs` lists all pages"
