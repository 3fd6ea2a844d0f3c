"""Reads the pages of docs/, which are shipped with the code."""

from __future__ import annotations

from pgflowd.core.documents.documentation import ErrorPage, page_of, page_of_row, rows_of
from pgflowd.errors import TITLES, PgflowdError
from pgflowd.resources import shipped

CODES = "errors/README.md"


def page_text(path: str) -> str:
    """The Markdown of a page, by its path below docs/."""
    place = shipped("docs") / path
    try:
        text = place.read_text(encoding="utf-8")
        if not text.strip():  # as where the disk was full
            raise ValueError("it is empty")
        if text.count("\n```") % 2:
            raise ValueError("a block does not end")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, UnicodeDecodeError):
            reason = "it is not UTF-8"
        raise PgflowdError(
            f"{place} is shipped with pgflowd and cannot be read: {reason}",
            code="E115",
            next="install pgflowd again: pip install --force-reinstall pgflowd",
        ) from error
    return text


def error_page(code: str) -> ErrorPage:
    """The page of a code of the registry, or what its row says."""
    row = rows_of(page_text(CODES)).get(code)
    return page_of_row(code, row) if row else page_of(code, page_text(f"errors/{code}.md"))


def error_texts() -> dict[str, str]:
    """The Markdown of every code: its page, or its row."""
    rows = rows_of(page_text(CODES))
    return {
        code: " ".join(rows[code]) if code in rows else page_text(f"errors/{code}.md")
        for code in TITLES
    }
