"""
What is written about a code, as `pgflowd explain` and the dashboard show it, and how it is read.

Each code has a row in the table of docs/errors/README.md; one whose example is worth reading has a
page there instead: a title, texts, and at the end the links to what is related.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from typing import Annotated, NamedTuple

from pgflowd.core.documents.documentation import LINK, page_of_link
from pgflowd.core.text import has_words
from pgflowd.errors import GROUPS, TITLES

_SEE_ALSO = "\n## See also\n"
_ROW = re.compile(r"^\| ([EW]\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class ErrorPage:
    """`group` says what codes of this kind are about; `pages` are files of docs/."""

    code: str
    title: str
    group: Annotated[str, "what such codes are about"]
    text: Annotated[str, "Markdown: below the title, above what is related"]
    related: Annotated[list[str], "other codes"]
    pages: Annotated[list[str], "files of the documentation"]

    @property
    def markdown(self) -> str:
        """The whole page; what is related is named by commands."""
        parts = [f"# {self.code}: {self.title}", self.text]
        commands = [f"- `pgflowd explain {code}`: {TITLES[code]}" for code in self.related]
        names = [page.removeprefix("docs/").removesuffix(".md") for page in self.pages]
        commands += [f"- `pgflowd docs {name}`" for name in names]
        parts += [_SEE_ALSO.strip(), "\n".join(commands)] if commands else []
        return "\n\n".join(parts)


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
    happened = row[0].removeprefix(f"{TITLES[code]}. ")
    text = f"{happened}\n\n## What to do\n\n{row[1]}"
    return ErrorPage(code, TITLES[code], group_of(code), text, [], [])


def page_of(code: str, text: str) -> ErrorPage:
    """The page of a code, from its Markdown; ValueError if it has another title."""
    first, _, rest = text.partition("\n")
    if first != f"# {code}: {TITLES[code]}":
        raise ValueError(f"the page of {code} does not begin with its title")
    said, _, see_also = rest.partition(_SEE_ALSO)
    links = list(LINK.finditer(see_also))
    others = [link["target"] for link in links if link["text"] not in TITLES]
    return ErrorPage(
        code,
        TITLES[code],
        group_of(code),
        said.strip(),
        [link["text"] for link in links if link["text"] in TITLES],
        [f"docs/{page}" for each in others if (page := page_of_link(f"errors/{code}.md", each))],
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
