"""
The examples of docs/errors: files to write, commands to run, and what they print; and the index.

`python tests/support/error_examples.py` writes the index, docs/errors/README.md.

Where a page shows no pgflowd.toml or no flows.py, there are those of `FILES`, as the index of the
pages says. A page without a block of commands is not executed: a test with `@covers` and its code
provokes that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from pgflowd.core.documents.error_pages import ErrorPage, group_of
from pgflowd.core.documents.markdown import BlockKind
from pgflowd.errors import TITLES
from pgflowd.host.error_pages import read

FILES = {
    "pgflowd.toml": '[pgflowd]\nflows = ["flows"]\n',
    "flows.py": "from pgflowd import job\n\n\n@job('orders')\ndef order(run):\n    return run\n",
}
INDEX = Path(__file__).parents[2] / "docs" / "errors" / "README.md"
_ABOUT = """\
# Codes

Each error and warning has a code, and each code a page: what happened, an example, what to do.
`pgflowd explain E210` shows it in a terminal, `pgflowd explain` lists all codes, and
`pgflowd explain time zone` those whose pages have these words. Codes with a W are warnings: pgflowd
goes on.

Where an example shows no `pgflowd.toml`, it has `flows = ["flows"]`; where it shows no `flows.py`,
there is a job `orders` that returns its input. A test runs each example with commands, and compares
what is printed. This page is made by `make codes`.
"""
_CUT = "…"  # stands for what differs each time


class Example(NamedTuple):
    """`printed` is what the page shows of the output of all commands."""

    code: str
    files: dict[str, str]
    commands: list[list[str]]
    printed: str

    @property
    def is_offline(self) -> bool:
        """Whether no command needs a database that answers."""
        alone = {"--offline", "--database-url"}
        return all(alone & {*words} or words[0] == "mv" for words in self.commands)


def example_of(page: ErrorPage) -> Example:
    blocks = [block for section in page.sections for block in section.blocks]
    files, commands = {}, []
    for block in blocks:
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in block.text.splitlines()]
            commands += [shlex.split(line) for line in lines]
        elif block.kind is BlockKind.CODE and (name := re.match(r"# (\S+\.\w+)\n", block.text)):
            files[name[1]] = block.text + "\n"
    printed = [block.text for block in blocks if block.kind is BlockKind.PRINTED]
    return Example(page.code, files, commands, "\n".join(printed))


def executed() -> list[Example]:
    """The examples that have commands."""
    examples = [example_of(read(code)) for code in TITLES]
    return [example for example in examples if example.commands]


def write_files(example: Example, place: Path) -> None:
    for name, text in {**FILES, **example.files}.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_all(example: Example, run: Callable[[Sequence[str]], object]) -> None:
    for words in example.commands:
        if words[0] == "pgflowd":
            run([*words[1:], "--quiet"])
        elif words[0] == "mv":
            Path(words[1]).replace(words[2])
        else:
            raise AssertionError(f"no test runs {words[0]}")


def is_shown(printed: str, output: str) -> bool:
    """Whether the output has what a page shows of it, however long its lines are."""
    parts = [re.escape(part.strip()) for part in re.split(_CUT, " ".join(printed.split()))]
    return re.search(r"\s*.*?\s*".join(parts), " ".join(output.split())) is not None


def index() -> str:
    """The text of docs/errors/README.md."""
    parts = [_ABOUT]
    for group, codes in groupby(TITLES, group_of):
        rows = [f"| [{code}]({code}.md) | {TITLES[code]} |" for code in codes]
        parts.append("\n".join([f"## {group}", "", "| code | means |", "|---|---|", *rows, ""]))
    return "\n".join(parts)


if __name__ == "__main__":
    INDEX.write_text(index(), "utf-8")
