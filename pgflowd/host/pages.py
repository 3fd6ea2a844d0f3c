"""Reads the pages of docs/, which are shipped with the code."""

from __future__ import annotations

from pgflowd.core.documents.markdown import blocks_of
from pgflowd.errors import PgflowdError
from pgflowd.resources import shipped


def page_text(path: str) -> str:
    """The Markdown of a page, by its path below docs/."""
    place = shipped("docs") / path
    try:
        text = place.read_text(encoding="utf-8")
        if not blocks_of(text):  # as where the disk was full
            raise ValueError("it is empty")
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
