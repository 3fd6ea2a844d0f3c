"""
The pages: a module for each group, with a function for each page, which reads its document.

A document is of the type that the command prints; the API answers with its `to_json`. To add a
page, write its function and its template, and add it to `PAGES` of its module.
"""

from __future__ import annotations

from pgflowd.web.pages import (
    daemons,
    database,
    explain,
    flows,
    overview,
    people,
    run,
    runs,
    schedules,
    start,
    step,
    troubles,
)
from pgflowd.web.pages.page import Page, PageRequest

__all__ = ["PAGES", "Page", "PageRequest"]

_GROUPS = (
    overview, runs, run, step, flows, daemons, troubles, people, schedules, start, database,
    explain,
)  # fmt: skip
PAGES = tuple(page for group in _GROUPS for page in group.PAGES)
