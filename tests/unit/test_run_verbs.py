"""A verb on runs is spelled out in few files, so that another one is quickly added."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = [
    path
    for room, suffixes in {"pgflowd": {".py"}, "sql": {".sql", ".txt"}}.items()
    for path in sorted((ROOT / room).rglob("*"))
    if path.suffix in suffixes
]
MAX_FILES = 15  # one of them for the dashboard, one that names the way out of a wait in a circle


@pytest.mark.parametrize("verb", ["cancel", "pause", "retry"])
def test_a_verb_on_runs_is_named_in_few_files(verb: str):
    places = [
        rf"def {verb}\(",  # the client, the operation, the query, the command
        rf"\b(runs|operations)\.{verb}\(",
        rf"\bpgflowd\.{verb}\b",  # in SQL: the function and its callers
        rf"\bruns {verb}\b",  # a command that a message names
        rf"\b{verb}\b.* runs\b",  # a help text
    ]
    naming = [
        str(path.relative_to(ROOT))
        for path in PRODUCT
        if re.search("|".join(places), path.read_text("utf-8"))
    ]

    assert "pgflowd/client.py" in naming
    assert len(naming) <= MAX_FILES, naming
