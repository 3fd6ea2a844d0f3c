"""
The pages: a module for each group, with a function for each page, which reads its document.

A document is of the type that the command prints; the API answers with its JSON. To add a page,
write its function and its template, and add it to `PAGES` of its module.
"""

from __future__ import annotations

from pgflowd.web.pages import flows, runs, system
from pgflowd.web.pages.page import Page, PageRequest

__all__ = ["PAGES", "Page", "PageRequest"]

PAGES = (*flows.PAGES, *runs.PAGES, *system.PAGES)
