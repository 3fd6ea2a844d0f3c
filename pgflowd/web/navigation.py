"""The pages that each page leads to."""

from __future__ import annotations

NAVIGATION = (
    ("/", "Overview"),
    ("/runs", "Runs"),
)
