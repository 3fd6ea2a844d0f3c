"""
Makes plain modules from the asynchronous ones that are written: `make clients`.

A module is read as tokens. `async` and `await` go, and names are those of plain Python: `NAMES`,
and else without `Async` or `_async`. A line that ends in `# async` is left out, one that is a
comment `# sync: …` becomes what the comment says. In docstrings the same names are replaced. A test
compares what is committed with what is made.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {  # by the module that is made
    "pgflowd/client.py": "pgflowd/async_client.py",
    "pgflowd/db/performing.py": "pgflowd/db/performing_async.py",
}
HEAD = "# Made from {source} by `make clients`; do not edit.\n"
NAMES = {
    "asyncio": "time",
    "follow_async": "follow_sync",
    "run_async": "run_sync",
}
_DUNDER = re.compile(r"__a(enter|exit|iter|next)__")
_ASYNC_ONLY = re.compile(r"\s+# async$")
_SYNC_ONLY = re.compile(r"^(\s*)# sync: (.*)$")
_WORD = re.compile(r"\w+")


def made(source: str) -> str:
    """Return what the source makes, with its head, formatted."""
    text = plain_of((ROOT / source).read_text("utf-8"))
    return HEAD.format(source=source) + text


def plain_of(text: str) -> str:
    """Return plain Python that does the same."""
    text = _ruff("check", "--quiet", "--fix", "--select=I,F401", text=_plain(_of_sync(text)))
    return _ruff("format", "--quiet", text=text)


def _of_sync(text: str) -> str:
    """The lines of the plain side, as they are written."""
    lines = (line for line in text.splitlines() if not _ASYNC_ONLY.search(line))
    return "".join(_SYNC_ONLY.sub(r"\1\2", line) + "\n" for line in lines)


def _plain(text: str) -> str:
    parts: list[str] = []
    row, column = 1, 0
    lines = text.splitlines(keepends=True)
    skips_space = False
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        between = _between(lines, (row, column), token.start)
        parts.append(between.lstrip(" ") if skips_space else between)
        row, column = token.end
        skips_space = token.string in ("async", "await")
        if not skips_space:
            parts.append(_token(token))
    return "".join(parts)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    """What stands between two tokens: spaces, and the ends of continued lines."""
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]] if start[0] <= len(lines) else ""
    first, last = lines[start[0] - 1][start[1] :], lines[end[0] - 1 : end[0]]
    return first + "".join(lines[start[0] : end[0] - 1]) + "".join(last)[: end[1]]


def _token(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        return _name(token.string)
    if token.type == tokenize.STRING:
        return _WORD.sub(lambda word: _name(word[0]), token.string.replace("await ", ""))
    return token.string


def _name(name: str) -> str:
    """The name of the same thing in plain Python."""
    if name in NAMES:
        return NAMES[name]
    name = _DUNDER.sub(r"__\1__", name)
    return re.sub(r"^(_?)Async(?=[A-Z])", r"\1", name.removesuffix("_async"))


def _ruff(*arguments: str, text: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [ruff, *arguments, "--stdin-filename=pgflowd/made.py", "-"]
    done = subprocess.run(
        command, input=text, cwd=ROOT, stdout=subprocess.PIPE, check=True, encoding="utf-8"
    )
    return done.stdout


def main() -> None:
    for path, source in SOURCES.items():
        (ROOT / path).write_text(made(source), "utf-8")


if __name__ == "__main__":
    main()
