"""
The examples of docs/errors: files to write, commands to run, and what they print.

Where a page shows no pgflowd.toml or no flows.py, there are those of `FILES`, as the index of the
pages says. A page without a block of commands is not executed: a test with `@covers` and its code
provokes that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from pgflowd.errors import TITLES
from pgflowd.host.pages import error_page
from support.pages import BLOCK

DOCS = Path(__file__).parents[2] / "docs"
FILES = {
    "pgflowd.toml": '[pgflowd]\nflows = ["flows"]\n',
    "flows.py": "from pgflowd import job\n\n\n@job('orders')\ndef order(run):\n    return run\n",
}
PAGES = [code for code in TITLES if (DOCS / f"errors/{code}.md").is_file()]
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


def example_of(code: str) -> Example:
    files, commands, printed = {}, [], []
    for language, text in BLOCK.findall(error_page(code).text):
        if language == "console":
            lines = [line.removeprefix("$ ") for line in text.splitlines()]
            commands += [shlex.split(line) for line in lines]
        elif language == "text":
            printed.append(text)
        elif name := re.match(r"# (\S+\.\w+)\n", text):
            files[name[1]] = text
    return Example(code, files, commands, "\n".join(printed))


def executed() -> list[Example]:
    """The examples that have commands."""
    examples = [example_of(code) for code in PAGES]
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
