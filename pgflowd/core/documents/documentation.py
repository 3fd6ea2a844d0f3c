"""
The documentation, as `pgflowd docs` shows it: its contents, its topics, and where words stand.

The contents are those of docs/index.md: a heading for each part, and below it a list of pages, each
a link and a sentence. A topic is the name of a page, with its directory if another page has
the same name. Paths of pages begin below docs/.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated

from pgflowd.core.documents import Hidden
from pgflowd.core.text import CUT, cut, has_words

INDEX = "index.md"
LINK = re.compile(r"!?\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)")
_PAGE = re.compile(rf"- {LINK.pattern}:?(?P<about>.*)")  # an item of the contents
_MARKS = re.compile(r"`+|\*\*|^(?: *- | *\d+\. |#+ |\| *)|<a id=\S+></a>|\\(?=[\\`*_|<\[])")
_BLOCK_END = re.compile(r"\n(?:[ \t]*\n)+|\n(?=#|```|\||\s*(?:-|\d+\.) )")
_MOST_OF_A_PAGE = 3  # places at which a search shows words; the page has the others
_MAX_CHARS = 160  # of a text around the words that were found
_BEFORE_CHARS = 50  # of them, before the first word
_MAX_NEAREST = 3

_PlacedText = tuple[str | None, str]  # the heading above a text, and the text


@dataclass(frozen=True)
class ListedPage:
    """A page of the contents; `about` is the sentence beside its link."""

    topic: Annotated[str, "by which `docs TOPIC` shows it"]
    title: Annotated[str, "the title of the page"]
    about: Annotated[str, "what the page is about"]
    path: Hidden[str]


@dataclass(frozen=True)
class ContentsPart:
    """A part of the documentation."""

    title: Annotated[str, "what the part is called"]
    pages: list[ListedPage]


@dataclass(frozen=True)
class FoundText:
    """Where words stand. `heading` is that of the section; None: above the first one."""

    topic: Annotated[str, "by which `docs TOPIC` shows the page"]
    title: Annotated[str, "the title of the page"]
    heading: Annotated[str | None, "the heading above the place; null above the first one"]
    text: Annotated[str, "what stands there"]


class TableOfContents:
    """The parts of the documentation, and its pages by their topics."""

    def __init__(self, index: str) -> None:
        listed = list(_listed(index))
        names = Counter(_name(path) for _, _, path, _ in listed)
        parts: dict[str, list[ListedPage]] = {}
        for part, title, path, about in listed:
            topic = _name(path) if names[_name(path)] == 1 else _stem(path)
            parts.setdefault(part, []).append(ListedPage(topic, title, about, path))
        self.parts = [ContentsPart(title, pages) for title, pages in parts.items()]
        self.pages = [page for part in self.parts for page in part.pages]

    def find(self, word: str) -> ListedPage | None:
        """The page that a topic, or the path of a page, names."""
        wanted = word.casefold().lstrip("./").removeprefix("docs/").removesuffix(".md")
        for page in self.pages:
            if wanted in (page.topic.casefold(), page.path.casefold().removesuffix(".md")):
                return page
        return None

    def part_of(self, page: ListedPage) -> ContentsPart:
        return next(part for part in self.parts if page in part.pages)

    def nearest(self, word: str) -> list[ListedPage]:
        """The pages whose topics are most like a word that is none."""
        wanted = word.casefold().removesuffix(".md").rpartition("/")[2]
        by_name: dict[str, list[ListedPage]] = {}
        for page in self.pages:
            by_name.setdefault(_name(page.path), []).append(page)
        close = get_close_matches(wanted[:100], by_name, n=_MAX_NEAREST)
        return [page for name in close for page in by_name[name]][:_MAX_NEAREST]


def found_in(pages: Sequence[tuple[ListedPage, str]], words: str) -> list[FoundText]:
    """
    The places of pages that have all these words: first titles, then headings, then texts, then
    pages that have them here and there.

    Each page is shown where it has the words best.
    """
    wanted = words.split()
    in_titles, in_headings = list[FoundText](), list[FoundText]()
    in_texts, in_pages = list[FoundText](), list[FoundText]()
    for page, text in pages:
        if has_words(f"{page.title} {page.topic}", wanted):
            in_titles.append(FoundText(page.topic, page.title, None, page.about))
        elif has_words(text, wanted):
            texts = list(_texts(text))
            if places := _below_headings(texts, wanted):
                found = in_headings
            elif places := _with_words(texts, wanted):
                found = in_texts
            else:
                places, found = _with_words(texts, wanted[:1]), in_pages
            found += [
                FoundText(page.topic, page.title, heading, _around(shown, wanted))
                for heading, shown in places[:_MOST_OF_A_PAGE]
            ]
    return [*in_titles, *in_headings, *in_texts, *in_pages]


def page_of_link(page: str, target: str) -> str | None:
    """The path of the page that a link of another page leads to; None: it leads elsewhere."""
    path = target.partition("#")[0]
    if not path.endswith(".md") or ":" in path:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _listed(index: str) -> Iterator[tuple[str, str, str, str]]:
    """Part, title, path and sentence of each page of the contents."""
    part = ""
    for block in _BLOCK_END.split(index):
        line = " ".join(block.split())
        if line.startswith("#"):
            part = _plain(line)
        elif part and (item := _PAGE.fullmatch(line)):
            path = page_of_link(INDEX, item["target"])
            if path:
                yield part, _plain(item["text"]), path, _plain(item["about"].strip())


def _stem(path: str) -> str:
    return re.sub(r"(?:/(?:README|index))?\.md$", "", path)


def _name(path: str) -> str:
    return _stem(path).rpartition("/")[2].casefold()


def _texts(text: str) -> Iterator[_PlacedText]:
    """The texts of a page without marks, each with its heading: paragraphs, rows, lines of code."""
    heading, is_code = None, False
    for block in _BLOCK_END.split(text):
        is_code ^= block.startswith("```")
        if is_code:
            for line in block.splitlines()[block.startswith("```") :]:
                yield heading, line.strip()
        elif not block.startswith("```"):
            shown = _plain(" ".join(block.split()))
            if block.startswith("#"):
                heading = shown if block.startswith("##") else None
            yield heading, shown


def _plain(text: str) -> str:
    """A text without the marks of Markdown."""
    return _MARKS.sub("", LINK.sub(r"\g<text>", text)).removesuffix("|").rstrip()


def _below_headings(texts: Sequence[_PlacedText], wanted: Sequence[str]) -> list[_PlacedText]:
    """The first text below each heading that has the words."""
    first: dict[str, str] = {}
    for heading, text in texts:
        if heading and text != heading and has_words(heading, wanted):
            first.setdefault(heading, text)
    return list(first.items())


def _with_words(texts: Sequence[_PlacedText], wanted: Sequence[str]) -> list[_PlacedText]:
    return [(heading, text) for heading, text in texts if has_words(text, wanted)]


def _around(text: str, wanted: Sequence[str]) -> str:
    """The part of a text that has the first of the words."""
    at = max(text.casefold().find(wanted[0].casefold()), 0)
    begin = text.find(" ", at - _BEFORE_CHARS) + 1 if at > _BEFORE_CHARS else 0
    shown = text[begin:] if begin <= at else text[at:]
    return cut(f"{CUT}{shown}" if len(shown) < len(text) else shown, _MAX_CHARS)
