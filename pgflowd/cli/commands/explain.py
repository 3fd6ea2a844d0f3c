"""
`pgflowd explain`: shows the page or row of a code, or lists codes.

They are those of `docs/errors`. It needs neither a config nor a database.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypedDict

import click
from click.shell_completion import CompletionItem

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.exits import NothingFound
from pgflowd.cli.groups import Command
from pgflowd.cli.params import ParamType
from pgflowd.cli.terminal.page_view import code_lines, show_page
from pgflowd.core.documents.documentation import (
    ErrorPage,
    ListedCode,
    codes_with,
    listed_codes,
    nearest_codes,
)
from pgflowd.core.redact import one_line
from pgflowd.errors import TITLES
from pgflowd.host.pages import error_page, error_texts


class Codes(TypedDict):
    """`explain` and `explain WORDS` print it. Exit code 4 for words that no page has."""

    codes: Annotated[Sequence[ListedCode], "the codes that were found"]


class CodeParam(ParamType):
    """A code, or words of a text."""

    name = "code"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        begun = incomplete.upper()
        return [
            CompletionItem(code, help=title)
            for code, title in TITLES.items()
            if code.startswith(begun)
        ]


@click.command(cls=Command, prints=ErrorPage | Codes)
@click.argument("code", nargs=-1, type=CodeParam(), metavar="[CODE | WORDS]")
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
        if app.json:
            app.print_document(page)
        else:
            show_page(page.markdown, app.out)
        return
    if near := nearest_codes(words):
        listed = ", ".join(f"{each} ({TITLES[each]})" for each in near)
        raise NothingFound(f"there is no code '{words}'; the nearest are {listed}")
    codes = codes_with(error_texts(), words) if words else list(TITLES)
    if not codes:
        shown = one_line(words, 60)
        raise NothingFound(f"no code has '{shown}'; `pgflowd explain` lists all codes")
    if app.json:
        app.print_document(Codes(codes=listed_codes(codes)))
        return
    app.print("\n".join(code_lines(codes, app.out)))
    app.note("`pgflowd explain CODE` says more about one of them")
