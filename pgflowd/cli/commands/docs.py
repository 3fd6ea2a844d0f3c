"""
`pgflowd docs` and `explain`: a page of the documentation or of a code, the contents, or where words
stand; and the types of the documents that commands print with `--json`, and the API answers.

The pages are those of `docs`. They need neither a config nor a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TypedDict, get_type_hints

import click

from pgflowd.cli.app import App, CommandRefused, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.params import begin_with, completing
from pgflowd.cli.problems import ShownProblem
from pgflowd.cli.terminal.page_view import code_lines, contents_lines, found_lines, show, show_page
from pgflowd.core.documents import documentation
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.redact import one_line
from pgflowd.core.text import did_you_mean
from pgflowd.errors import TITLES
from pgflowd.host.pages import error_page, error_texts, page_text


class ListedParts(TypedDict):
    """`docs` without a topic prints it."""

    parts: Annotated[Sequence[documentation.ContentsPart], "the parts of the documentation"]


class ShownPage(TypedDict):
    """`docs TOPIC` prints it. Exit code 4 for a topic that does not exist."""

    topic: Annotated[str, "by which `docs TOPIC` shows it"]
    title: Annotated[str, "the title of the page"]
    part: Annotated[str, "the part of the documentation to which it belongs"]
    text: Annotated[str, "the page, as Markdown"]


class FoundTexts(TypedDict):
    """`docs WORDS` prints it. Exit code 4 for words that no page has."""

    found: Annotated[
        Sequence[documentation.FoundText], "where the words stand, the best places first"
    ]


@click.command(cls=Command, prints={"": ListedParts | ShownPage | FoundTexts, "--schema": None})
@click.argument(
    "topic",
    nargs=-1,
    metavar="[TOPIC | WORDS]",
    shell_complete=completing(
        lambda: ((page.topic, page.title) for page in table_of_contents().pages)
    ),
)
@click.option(
    "--schema", metavar="[NAME]", is_flag=False, flag_value="",
    help="The JSON Schema of what a command prints with --json, such as runs-show.",
    shell_complete=completing(lambda: documents()),
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
        from pgflowd.core.documents.documentation import schema_of

        name = " ".join([schema, *topic]).strip().replace(" ", "-")
        known = documents()
        if name in known:
            app.print_json(schema_of(known[name]))
        elif name:
            remedy = did_you_mean(name, known) or f"these are: {', '.join(known)}"
            raise nothing_found(f"there is no document '{one_line(name, 60)}'; {remedy}")
        elif app.json:
            app.print_json(list(known))
        else:
            app.print("\n".join(known))
        return
    contents, words = table_of_contents(), " ".join(topic).strip()
    if not words:
        lines = contents_lines(contents, app.out)
        app.print_result(lambda: show(lines, app.out), ListedParts(parts=contents.parts))
        finds = "`pgflowd docs WORDS` finds the pages with these words"
        app.note(f"`pgflowd docs TOPIC` shows a page, {finds}")
    elif page := contents.find(words):
        text, part = page_text(page.path), contents.part_of(page).title
        document = ShownPage(topic=page.topic, title=page.title, part=part, text=text)
        app.print_result(lambda: show_page(text, app.out), document)
    else:
        if words.upper() in TITLES:
            raise nothing_found(f"`pgflowd explain {words.upper()}` shows the page of a code")
        found = documentation.found_in(
            [(page, page_text(page.path)) for page in contents.pages], words
        )
        if not found:
            shown, nearest = one_line(words, 60), contents.nearest(words)
            if nearest:
                listed = ", ".join(f"{page.topic} ({page.title})" for page in nearest)
                raise nothing_found(f"there is no topic '{shown}'; the nearest are {listed}")
            raise nothing_found(f"no page has '{shown}'; `pgflowd docs` lists all pages")
        app.print_result(
            lambda: show(found_lines(found, app.out), app.out), FoundTexts(found=found)
        )
        seeks = "`pgflowd explain WORDS` seeks in those about codes"
        app.note(f"`pgflowd docs TOPIC` shows a page, {seeks}")


@click.command(cls=Command, prints=documentation.ErrorPage | documentation.Codes)
@click.argument(
    "code", nargs=-1, metavar="[CODE | WORDS]",
    shell_complete=lambda _ctx, _param, begun: begin_with(begun.upper(), TITLES.items()),
)  # fmt: skip
@pass_app
def explain(app: App, code: tuple[str, ...]) -> None:
    """Explain the code of an error or a warning: what happened, and what to do.

    Without a code all are listed; of words, the codes whose pages or rows have them all.

    \b
    Example: pgflowd explain E210
             pgflowd explain schedule time zone
    """
    words = " ".join(code)
    if words.upper() in TITLES:
        page = error_page(words.upper())
        app.print_result(lambda: show_page(page.markdown, app.out), page)
        return
    if near := documentation.nearest_codes(words):
        listed = ", ".join(f"{each} ({TITLES[each]})" for each in near)
        raise nothing_found(f"there is no code '{words}'; the nearest are {listed}")
    codes = documentation.codes_with(error_texts(), words) if words else list(TITLES)
    if not codes:
        shown = one_line(words, 60)
        raise nothing_found(f"no code has '{shown}'; `pgflowd explain` lists all codes")
    document = documentation.Codes(documentation.listed_codes(codes))
    app.print_result("\n".join(code_lines(codes, app.out)), document)
    app.note("`pgflowd explain CODE` says more about one of them")


def table_of_contents() -> documentation.TableOfContents:
    return documentation.TableOfContents(page_text(documentation.INDEX))


def nothing_found(text: str) -> CommandRefused:
    """There is no such page; the text names the nearest."""
    return CommandRefused(text, ExitCode.NOT_FOUND)


def documents() -> dict[str, Any]:
    """The types of documents by their names: `runs-list`, `runs-log-follow`, `api-flows`."""
    from pgflowd.cli.main import cli

    return {"errors": list[ShownProblem], **dict(_of_commands(cli, [])), **dict(_of_api())}


def _of_commands(command: click.Command, words: list[str]) -> Iterator[tuple[str, Any]]:
    for option, kind in getattr(command, "prints", {}).items():
        if kind is not None:
            yield "-".join([*words, *([option.lstrip("-")] if option else [])]), kind
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            inner = command.get_command(ctx, name)
            assert inner is not None
            yield from _of_commands(inner, [*words, name])


def _of_api() -> Iterator[tuple[str, Any]]:
    """Of its pages, and of changes of many runs."""
    from pgflowd.web.actions import ChangedRuns
    from pgflowd.web.pages import PAGES

    for page in PAGES:
        name = "-".join(["api", *re.findall(r"\w+", page.path)]) if page.path != "/" else "api"
        yield name, get_type_hints(page.read)["return"]
        for view, shown in page.views.items():
            yield f"{name}-{view}", get_type_hints(shown.read)["return"]
    yield "api-runs-changed", ChangedRuns
