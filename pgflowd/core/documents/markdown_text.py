"""
The spans of a text of our pages: what is code, bold or a link, and where links lead.

Links are relative to their page, as GitHub has them; `page_of_link` names the page by its path
below docs/.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

_SPAN = re.compile(
    r"(?P<ticks>`+) ?(?P<code>.+?) ?(?P=ticks)(?!`)"
    r"|!\[(?P<picture>[^\]]*)\]\((?P<file>[^)\s]+)\)"
    r"|\[(?P<link>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)"
    r"|\*\*(?P<strong>.+?)\*\*"
    r"|(?<![\w*])\*(?P<emphasis>[^\s*](?:[^*]*[^\s*])?)\*(?![\w*])"
    r"|\\(?P<escaped>[\\`*_|<\[])"
)


class SpanKind(StrEnum):
    """What a part of a text is."""

    PLAIN = "plain"
    CODE = "code"
    STRONG = "strong"
    EMPHASIS = "emphasis"
    LINK = "link"
    PICTURE = "picture"


class Span(NamedTuple):
    """`target` is that of a link or picture. `text` has no marks any more."""

    kind: SpanKind
    text: str
    target: str = ""


def spans_of(text: str, within: SpanKind = SpanKind.PLAIN) -> Iterator[Span]:
    """The spans of a text; in bold and italic ones, code and links are spans of their own."""
    at = 0
    for match in _SPAN.finditer(text):
        if between := text[at : match.start()]:
            yield Span(within, between)
        yield from _spans(match, within)
        at = match.end()
    if rest := text[at:]:
        yield Span(within, rest)


def plain(text: str) -> str:
    """The text without marks."""
    return "".join(span.text for span in spans_of(text))


def links_of(text: str) -> list[Span]:
    return [span for span in spans_of(text) if span.kind is SpanKind.LINK]


def page_of_link(page: str, target: str) -> str | None:
    """The path of the page that a link of another page leads to; None: it leads elsewhere."""
    path = target.partition("#")[0]
    if not path.endswith(".md") or ":" in path:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _spans(match: re.Match[str], within: SpanKind) -> Iterator[Span]:
    match match.lastgroup:
        case "code":
            yield Span(SpanKind.CODE, match["code"])
        case "file":
            yield Span(SpanKind.PICTURE, match["picture"], match["file"])
        case "target":
            yield Span(SpanKind.LINK, plain(match["link"]), match["target"])
        case "strong":
            yield from spans_of(match["strong"], SpanKind.STRONG)
        case "emphasis":
            yield from spans_of(match["emphasis"], SpanKind.EMPHASIS)
        case _:
            yield Span(within, match["escaped"])
