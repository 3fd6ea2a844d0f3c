"""Blocks of the project's pages, for tests that execute what a page shows."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks_of(page: str, language: str) -> list[str]:
    """The texts of a page's blocks in this language, in their order."""
    text = (ROOT / page).read_text("utf-8")
    return [match[2] for match in BLOCK.finditer(text) if match[1] == language]


def pages_with(language: str, *parts: str) -> list[str]:
    """The pages of these parts of docs/ that have a block in this language."""
    found = [page for part in parts for page in sorted((ROOT / "docs" / part).glob("*.md"))]
    paths = [str(page.relative_to(ROOT)) for page in found]
    return [path for path in paths if blocks_of(path, language)]


def executed(page: str) -> dict[str, Any]:
    """What a page's Python, taken as one program, has defined."""
    module = ModuleType(f"page_{Path(page).stem.replace('-', '_')}")
    sys.modules[module.__name__] = module  # where annotations look for their names
    for block in blocks_of(page, "python"):
        exec(block, vars(module))
    return vars(module)
