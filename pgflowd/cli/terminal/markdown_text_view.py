"""
A text of a page on a terminal: code, bold and links in colours, wrapped.

Code keeps its backquotes where there are no colours. A link to another page is followed by that
page's topic, in brackets. Where the locale has ASCII only, signs become letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from pgflowd.cli.terminal.screen import BAR, CUT, DASH, NEXT, Screen
from pgflowd.core.documents.markdown_text import Span, SpanKind, spans_of
from pgflowd.core.statuses import Mark, Marks

TopicOf = Callable[[str], str | None]  # the topic of the page to which a link leads

_MARKS = [NEXT, DASH, CUT, *BAR, *(each for each in vars(Marks).values() if isinstance(each, Mark))]
_ASCII = str.maketrans(
    {"←": "<-", "\N{MULTIPLICATION SIGN}": "x", "°": "*", "µ": "u", "≤": "<=", "≥": ">=",
     "─": "-", "│": "|", "├": "|", "└": "`", "┌": ".", "┐": ".", "┘": "'", "┬": "-", "┴": "-",
     "┤": "|", "┼": "+", "▼": "v"}
    | {each.sign: each.ascii for each in _MARKS}
)  # fmt: skip


class _Style(NamedTuple):
    colour: str | None = None
    bold: bool = False


_STYLES = {
    SpanKind.PLAIN: _Style(),
    SpanKind.CODE: _Style("cyan"),
    SpanKind.STRONG: _Style(bold=True),
    SpanKind.EMPHASIS: _Style(bold=True),
    SpanKind.LINK: _Style("blue"),
    SpanKind.PICTURE: _Style("blue"),
}


def text_lines(
    text: str,
    screen: Screen,
    topic_of: TopicOf = lambda _: None,
    *,
    head: str = "",
    indent: int = 0,
    width: int | None = None,
    bold: bool = False,
) -> list[str]:
    """A text with marks, painted and wrapped; the arguments are those of `Screen.wrapped`."""
    spans = [span for each in spans_of(text) for span in _shown(each, screen, topic_of)]
    whole = "".join(span.text for span in spans)
    lines = screen.wrapped(whole, head=head, indent=indent, width=width, whole=True)
    return _painted(lines, head, spans, screen, bold) if screen.colour else lines


def shown(text: str, screen: Screen) -> str:
    """The text with letters only that this screen has."""
    return text if screen.unicode else text.translate(_ASCII)


def _shown(span: Span, screen: Screen, topic_of: TopicOf) -> Iterator[Span]:
    """A span as this screen has it."""
    text = shown(span.text, screen)
    if span.kind is SpanKind.CODE and not screen.colour:
        text = f"`{text}`"
    if span.kind is SpanKind.PICTURE:
        text = f"(picture: {text})"
    if span.kind is not SpanKind.LINK:
        yield span._replace(text=text)
        return
    topic = span.target if ":" in span.target else topic_of(span.target)
    if topic is None or text == topic:
        yield span._replace(text=text)
        return
    if text.removesuffix(".md") != topic.rpartition("/")[2]:
        yield span._replace(text=f"{text} ")
    yield Span(SpanKind.LINK, f"[{topic}]")


def _painted(
    lines: list[str], head: str, spans: Iterable[Span], screen: Screen, bold: bool
) -> list[str]:
    """The lines of a text in colour: their letters are those of head and spans, in this order."""
    styles = [_Style()] * _letters(head)
    for span in spans:
        styles += [_STYLES[span.kind]] * _letters(span.text)
    style = iter(styles)
    painted = []
    for line in lines:
        letters = [(char, _Style() if char == " " else next(style)) for char in line]
        runs = groupby(letters, lambda letter: letter[1])
        painted.append(
            "".join(
                screen.paint("".join(char for char, _ in run), each.colour, each.bold or bold)
                for each, run in runs
            )
        )
    return painted


def _letters(text: str) -> int:
    return len(text) - text.count(" ")
