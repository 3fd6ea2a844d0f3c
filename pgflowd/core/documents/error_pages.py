"""
A page about a code, as `pgflowd explain` and the dashboard show it, and how it is read.

`page_of` reads the Markdown of such a page in docs/errors, and knows just what these have:
a title, paragraphs, lists, blocks of code, sections, and at the end the links to what is related.
Texts keep the `…` of code within them; other pages are named in `related` and `pages` alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from pgflowd.core.documents.markdown import BlockKind, PageBlock, blocks_of
from pgflowd.core.documents.markdown_text import links_of, page_of_link
from pgflowd.core.text import has_words
from pgflowd.errors import GROUPS, TITLES

SEE_ALSO = "See also"


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
            {"title": each.title, "blocks": [_block_json(one) for one in each.blocks]}
            for each in self.sections
        ]
        return {**vars(self), "sections": sections}


def _block_json(block: PageBlock) -> dict[str, Any]:
    return {"kind": block.kind, "text": block.text, "language": block.language}


def group_of(code: str) -> str:
    return GROUPS[code[1]]


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
    targets = [link.target for text in see_also for link in links_of(text)]
    linked = [page for each in targets if (page := page_of_link(here, each))]
    codes = {f"errors/{each}.md": each for each in TITLES}
    return ErrorPage(
        code,
        TITLES[code],
        group_of(code),
        [_checked(section) for section in sections if section.title != SEE_ALSO],
        [codes[page] for page in linked if page in codes],
        [f"docs/{page}" for page in linked if page not in codes],
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
