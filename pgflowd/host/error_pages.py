"""Reads the pages of `docs/errors`."""

from __future__ import annotations

from pgflowd.core.documents.error_pages import ErrorPage, page_of
from pgflowd.errors import TITLES
from pgflowd.host.pages import page_text


def read(code: str) -> ErrorPage:
    """The page of a code of the registry."""
    return page_of(code, _text(code))


def texts() -> dict[str, str]:
    """The Markdown of every page, by its code."""
    return {code: _text(code) for code in TITLES}


def _text(code: str) -> str:
    return page_text(f"errors/{code}.md")
