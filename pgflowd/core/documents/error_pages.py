"""
What is written about a code, as `pgflowd explain` and the dashboard show it, and how it is read.

Each code has a row in the table of docs/errors/README.md; one whose example is worth reading has a
page there instead. `page_of` reads the Markdown of such a page, and knows just what these have:
a title, paragraphs, lists, blocks of code, sections, and at the end the links to what is related.
Texts keep the `…` of code within them; other pages are named in `related` and `pages` alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Annotated, NamedTuple

from pgflowd.core.documents.markdown import BlockKind, PageBlock, blocks_of
from pgflowd.core.documents.markdown_text import links_of, page_of_link
from pgflowd.core.text import has_words
from pgflowd.errors import GROUPS, TITLES

SEE_ALSO = "See also"
_ROW = re.compile(r"^\| ([EW]\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class PageSection:
    """The first one of a page has no title: it says what happened, and why."""

    title: Annotated[str | None, "null for the first one"]
    blocks: Annotated[list[PageBlock], "its texts"]


@dataclass(frozen=True)
class ErrorPage:
    """`group` says what codes of this kind are about; `pages` are files of docs/."""

    code: str
    title: str
    group: Annotated[str, "what such codes are about"]
    sections: Annotated[list[PageSection], "the parts of its page"]
    related: Annotated[list[str], "other codes"]
    pages: Annotated[list[str], "files of the documentation"]


class ListedCode(NamedTuple):
    """A code in a list."""

    code: str
    title: str
    group: Annotated[str, "what such codes are about"]


def listed_codes(codes: Iterable[str]) -> list[ListedCode]:
    return [ListedCode(code, TITLES[code], group_of(code)) for code in codes]


def group_of(code: str) -> str:
    return GROUPS[code[1]]


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """What happened and what to do, by the codes that have no page of their own."""
    return {code: (happened, remedy) for code, happened, remedy in _ROW.findall(text)}


def page_of_row(code: str, row: tuple[str, str]) -> ErrorPage:
    happened, remedy = (PageBlock(BlockKind.TEXT, text) for text in row)
    happened = replace(happened, text=happened.text.removeprefix(f"{TITLES[code]}. "))
    sections = [PageSection(None, [happened]), PageSection("What to do", [remedy])]
    return ErrorPage(code, TITLES[code], group_of(code), sections, [], [])


def page_of(code: str, text: str) -> ErrorPage:
    """The page of a code, from its Markdown; ValueError says what no page may have."""
    first, _, rest = text.partition("\n")
    if first != f"# {code}: {TITLES[code]}":
        raise ValueError(f"the page of {code} does not begin with its title")
    sections = [PageSection(None, [])]
    for block in blocks_of(rest):
        if block.kind is BlockKind.HEADING and block.level == 2:
            sections.append(PageSection(block.text, []))
        else:
            sections[-1].blocks.append(block)
    see_also = [block.text for each in sections if each.title == SEE_ALSO for block in each.blocks]
    here = f"errors/{code}.md"
    links = [link for text in see_also for link in links_of(text)]
    others = [each.target for each in links if each.text not in TITLES]
    return ErrorPage(
        code,
        TITLES[code],
        group_of(code),
        [_checked(section) for section in sections if section.title != SEE_ALSO],
        [each.text for each in links if each.text in TITLES],
        [f"docs/{page}" for each in others if (page := page_of_link(here, each))],
    )


def found_in(pages: Mapping[str, str], words: str) -> list[str]:
    """The codes whose pages have all these words; those with all of them in the title first."""
    wanted = words.split()
    in_title = [code for code in pages if has_words(TITLES[code], wanted)]
    in_page = [code for code, text in pages.items() if has_words(text, wanted)]
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


def _checked(section: PageSection) -> PageSection:
    for block in section.blocks:
        if block.kind in (BlockKind.HEADING, BlockKind.TABLE) or block.indent or block.mark != "-":
            raise ValueError(f"pages about codes have no {block.kind} of this kind: {block.text}")
        if block.kind in (BlockKind.TEXT, BlockKind.ITEM) and links_of(block.text):
            raise ValueError(f"links stand below {SEE_ALSO}: {block.text}")
    return section
