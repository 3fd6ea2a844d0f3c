"""
Writes what assistants read into a built site: `python tools/llms.py build/site`.

`llms.txt` is the contents with links to the pages as Markdown, which are copied beside the HTML.
`llms-full.txt` has all pages, one after the other, in the order of the contents.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pgflowd.core.documents.documentation import INDEX, TableOfContents

DOCS = Path(__file__).parents[1] / "docs"
CODES = "errors/README.md"  # the pages of codes follow it


def main(site: Path) -> None:
    for page in DOCS.rglob("*.md"):
        copy = site / page.relative_to(DOCS)
        copy.write_text(page.read_text("utf-8"), "utf-8")
    index = (DOCS / INDEX).read_text("utf-8")
    (site / "llms.txt").write_text(contents(index), "utf-8")
    (site / "llms-full.txt").write_text(everything(index), "utf-8")


def contents(index: str) -> str:
    """The contents as llmstxt.org wants them: a line for each page, about the whole a quotation."""
    title, about, _ = index.split("\n\n", 2)
    lines = [title, "", f"> {' '.join(about.split())}"]
    for part in TableOfContents(index).parts:
        lines += ["", f"## {part.title}", ""]
        lines += [
            f"- [{page.title}]({page.path})" + (f": {page.about}" if page.about else "")
            for page in part.pages
        ]
    return "\n".join(lines) + "\n"


def everything(index: str) -> str:
    """All pages, each below its path; links of a page are relative to that path."""
    texts = [contents(index)]
    for path in paths(index):
        texts.append(f"---\n\nPage: {path}\n\n{(DOCS / path).read_text('utf-8')}")
    return "\n".join(texts)


def paths(index: str) -> list[str]:
    """The paths of all pages, in the order of the contents."""
    found = [page.path for page in TableOfContents(index).pages]
    behind = found.index(CODES) + 1
    codes = sorted(page.relative_to(DOCS).as_posix() for page in DOCS.glob("errors/[EW]*.md"))
    return [*found[:behind], *codes, *found[behind:]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
