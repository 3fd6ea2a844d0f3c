"""Between processes there are JSON and descriptors only, and no shared locks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.covers import covers

import pgflowd

BYTECODE = "flow_loading.py"  # reads and writes what Python's own imports do
SOURCES = sorted(Path(pgflowd.__file__).parent.rglob("*.py"))
FORBIDDEN = re.compile(
    r"\b(import|from)\s+(pickle|dill|marshal|shelve)\b"
    r"|\bmultiprocess(ing)?\.(Queue|SimpleQueue|Lock|RLock|Event|Manager|Pool|Pipe)\b"
    r"|\bfrom multiprocess(ing)? import\b"
    r"|_fork\.(Queue|SimpleQueue|Lock|RLock|Event|Manager|Pool|Pipe)\b"
)


@covers("row 108")
@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.name)
def test_no_module_unpickles_or_shares_a_lock(source):
    text = source.read_text()
    if source.name == BYTECODE:
        text = text.replace("import marshal\n", "", 1)

    assert not FORBIDDEN.search(text)
