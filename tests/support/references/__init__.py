"""
Writes the pages below docs/reference that are made from the code, and config/pgflowd.toml.

`make references` calls `write`; `tests/docs/test_generated_pages.py` compares what is there.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.references.commands import commands_page
from support.references.config import config_file, config_page
from support.references.log_fields import log_page
from support.references.metrics import metrics_page
from support.references.python_api import api_page
from support.references.sql import sql_page
from support.references.verbs import verbs_page

ROOT = Path(__file__).parents[3]
FILES: dict[str, Callable[[], str]] = {
    "config/pgflowd.toml": config_file,
    "docs/reference/commands.md": commands_page,
    "docs/reference/config.md": config_page,
    "docs/reference/log-fields.md": log_page,
    "docs/reference/metrics.md": metrics_page,
    "docs/reference/python-api.md": api_page,
    "docs/reference/sql.md": sql_page,
    "docs/reference/verbs.md": verbs_page,
}


def write() -> None:
    for path, text in FILES.items():
        (ROOT / path).write_text(text(), "utf-8")
