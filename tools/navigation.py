"""Writes the navigation of the site into mkdocs.yml: the parts and pages of docs/index.md."""

from __future__ import annotations

import json
from pathlib import Path

from pgflowd.core.documents.documentation import INDEX, TableOfContents

ROOT = Path(__file__).parents[1]
SETTINGS = ROOT / "mkdocs.yml"
HEAD = "\nnav: # made of docs/index.md by `make site`\n"


def with_navigation(settings: str, index: str) -> str:
    """The settings with the pages of the contents; their titles are quoted as JSON, so as YAML."""
    lines = [f"  - {INDEX}"]
    for part in TableOfContents(index).parts:
        lines.append(f"  - {json.dumps(part.title)}:")
        lines += [f"      - {json.dumps(page.title)}: {page.path}" for page in part.pages]
    return settings.partition(HEAD)[0] + HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    index = (ROOT / "docs" / INDEX).read_text("utf-8")
    SETTINGS.write_text(with_navigation(SETTINGS.read_text("utf-8"), index), "utf-8")
