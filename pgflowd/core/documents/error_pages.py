"""
A page about a code, as `pgflowd explain` and the dashboard show it, and how it is read.

`page_of` reads the Markdown of such a page in docs/errors, and knows just what these have:
a title, paragraphs, lists, blocks of code, sections, and at the end the links to what is related.
Texts keep the `…` of code within them; other pages are named in `related` and `pages` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from pgflowd.errors import GROUPS, TITLES

SEE_ALSO = "See also"
_FENCE = "```"
_LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")


class BlockKind(StrEnum):
    """What a part of a section is."""

    TEXT = "text"
    ITEM = "item"  # of a list
    CODE = "code"  # to write or to type
    PRINTED = "printed"  # what pgflowd answers


@dataclass(frozen=True)
class PageBlock:
    """`language` is that of code, else None: `console` has command lines behind `$`."""

    kind: BlockKind
    text: str
    language: str | None = None


@dataclass(frozen=True)
class PageSection:
    """The first one of a page has no title: it says what happened, and why."""

    title: str | None
    blocks: list[PageBlock]


@dataclass(frozen=True)
class ErrorPage:
    """`group` says what codes of this kind are about; `pages` are files of docs/."""

    code: str
    title: str
    group: str
    sections: list[PageSection]
    related: list[str]  # codes
    pages: list[str]

    def to_json(self) -> dict[str, Any]:
        sections = [
            {"title": each.title, "blocks": [vars(one) for one in each.blocks]}
            for each in self.sections
        ]
        return {**vars(self), "sections": sections}


def group_of(code: str) -> str:
    return GROUPS[code[1]]


def page_of(code: str, text: str) -> ErrorPage:
    """The page of a code, from its Markdown; ValueError says what no page may have."""
    first, _, rest = text.partition("\n")
    if first != f"# {code}: {TITLES[code]}":
        raise ValueError(f"the page of {code} does not begin with its title")
    head, *parts = re.split(r"^## (.*)\n", rest, flags=re.MULTILINE)
    titles, bodies = [None, *parts[::2]], [head, *parts[1::2]]
    sections: list[PageSection] = []
    links: list[str] = []
    for title, body in zip(titles, bodies, strict=True):
        if title == SEE_ALSO:
            links += [target for _, target in _LINK.findall(body)]
        else:
            sections.append(PageSection(title, list(_blocks(body))))
    codes = {f"{each}.md": each for each in TITLES}
    return ErrorPage(
        code,
        TITLES[code],
        group_of(code),
        sections,
        [codes[link] for link in links if link in codes],
        [_page(link) for link in links if link not in codes],
    )


def found_in(pages: Mapping[str, str], words: str) -> list[str]:
    """The codes whose pages have all these words; those with all of them in the title first."""
    wanted = words.casefold().split()
    in_title = [code for code in pages if _has(TITLES[code], wanted)]
    in_page = [code for code, text in pages.items() if _has(text, wanted)]
    return list(dict.fromkeys([*in_title, *in_page]))


def nearest_codes(word: str) -> list[str]:
    """The three codes that are most like one that does not exist; none for other words."""
    if not re.fullmatch(r"[A-Za-z]?\d{1,5}", word):
        return []
    letter, digits = word[:1].upper(), re.sub(r"\D", "", word)

    def distance(code: str) -> tuple[int, int, int, bool]:
        differing = sum(one != other for one, other in zip_longest(code[1:], digits))
        is_moved = sorted(code[1:]) == sorted(digits)
        apart = abs(int(code[1:]) - int(digits))
        return min(differing, 1 if is_moved else 9), code[1] != digits[0], apart, code[0] != letter

    return sorted(TITLES, key=distance)[:3]


def _has(text: str, wanted: list[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in wanted)


def _page(link: str) -> str:
    """The path of a page from the top of the project, without the place on it."""
    parts = ["docs", "errors"]
    for part in link.partition("#")[0].split("/"):
        parts = parts[:-1] if part == ".." else [*parts, part]
    return "/".join(parts)


def _blocks(body: str) -> Iterator[PageBlock]:
    prose, *rest = re.split(r"^```", body, flags=re.MULTILINE)
    yield from _prose(prose)
    for number, part in enumerate(rest):
        first, _, text = part.partition("\n")
        if number % 2:
            if first:
                raise ValueError(f"a block ends with {_FENCE}{first}")
            yield from _prose(text)
        elif not first:
            raise ValueError("a block has no language")
        elif first == "text":
            yield PageBlock(BlockKind.PRINTED, text.removesuffix("\n"))
        else:
            yield PageBlock(BlockKind.CODE, text.removesuffix("\n"), first)
    if len(rest) % 2:
        raise ValueError("a block does not end")


def _prose(text: str) -> Iterator[PageBlock]:
    """Paragraphs and lists, each on one line."""
    if _LINK.search(text) or re.search(r"^(#|\||>|\d+\.)", text, re.MULTILINE):
        raise ValueError(f"links stand below {SEE_ALSO}, and there are no tables: {text.strip()}")
    for paragraph in re.split(r"\n\s*\n", text.strip()):
        for part in re.split(r"^(?=- )", paragraph, flags=re.MULTILINE):
            if words := " ".join(part.split()):
                is_item = words.startswith("- ")
                kind = BlockKind.ITEM if is_item else BlockKind.TEXT
                yield PageBlock(kind, words[2:] if is_item else words)
