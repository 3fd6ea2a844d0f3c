"""Parts of pages: tables, lists and texts that GitHub, a site and a terminal show alike."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120
_BLANK = "\0"  # within code, where no line ends
MADE = "This page is made by `make references`."


def page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", *(part.strip("\n") for part in parts if part)]) + "\n"


def paragraph(text: str) -> str:
    return _filled(text)


def item(text: str) -> str:
    """An item of a list."""
    return _filled(text, "- ", "  ")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in row)} |" for row in lines)


def code(text: object) -> str:
    return f"`{text}`"


def block(text: str) -> str:
    """A signature, which may be long."""
    lines = textwrap.fill(text, 110, subsequent_indent="    ", break_long_words=False)
    return f"```text\n{lines}\n```"


def prose(text: str) -> str:
    """A text on one line, in which nothing but its code and links has a meaning for Markdown."""
    parts = re.split(r"(`[^`]*`|\[[^\]]+\]\([^)]+\))", " ".join(text.split()))
    parts[::2] = [re.sub(r"([<*]|(?<!\w)_|_(?!\w))", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _cell(text: str) -> str:
    assert "|" not in text, f"a cell cannot have this: {text}"
    return " ".join(text.split())


def _filled(text: str, first: str = "", others: str = "") -> str:
    whole = re.sub(r"`[^`]*`", lambda match: match[0].replace(" ", _BLANK), prose(text))
    lines = textwrap.fill(
        whole,
        WIDTH,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace(_BLANK, " ")
