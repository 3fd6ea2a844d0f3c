"""
The pages: a module for each group, with a function for each page, which reads its document.

A document is of the type that the command prints; the API answers with its `to_json`. To add a
page, write its function and its template, and add it to `PAGES` of its module.
"""

from __future__ import annotations

from pgflowd.web.pages import overview, run, runs
from pgflowd.web.pages.page import Document, Page, PageRequest

__all__ = ["PAGES", "Document", "Page", "PageRequest"]

PAGES = (*overview.PAGES, *runs.PAGES, *run.PAGES)
