"""
Walks through a page as its reader does: types commands, writes files, compares what is printed.

The blocks of the page are taken in their order, in one directory:

- `console`: commands behind `$`, on a terminal; a `cd` counts for the blocks after it, too.
  `pip install` is left out, since the tests have it. The terminal of a block that ends with one of
  `SERVING` stays open.
- A block that begins with `# FILE` is that file. One that begins with `# FILE, instead of NAME`
  takes the place of the function NAME in it.
- `text` right behind a console block is all that it prints; any other is what the open terminal
  shows next. `…` stands for anything, and `^C` is typed. Blanks need not be the same, nor what
  `VARIES`. Commands whose output is not shown must succeed.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import Self

from pgflowd.testing.until import until
from support.live_terminal import CTRL_C, LiveTerminal
from support.pages import BLOCK, ROOT

WALKED = ("docs/start/ten-minutes.md", "docs/start/from-a-script.md")
SERVING = ("pgflowd dev", "pgflowd serve")
VARIES = re.compile(
    r"(?<=key=)[\w-]+"
    r"|[0-9a-f]{8}-[0-9a-f-]{27}|\b[0-9a-f]{8}\b"  # ids
    r"|\d\d:\d\d:\d\d|(?:\d[\d.]*(?:ms|[smhd]))+\b"  # times
    r"|\d+\.\d+[\d.]*|(?<=:)\d{4,5}\b"  # versions, ports
)
_FILE = re.compile(r"# (\S+\.\w+)(?:, instead of (\w+))?\n")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_WITHIN_S = 60.0


class Walk:
    """A reader in a directory, with a terminal for each console block."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._terminals: list[_Terminal] = []
        self._open: _Terminal | None = None  # the one where a command serves

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for terminal in self._terminals:
            try:
                if terminal.process.poll() is None:
                    terminal.type(CTRL_C)
                    terminal.ended(_WITHIN_S)
            finally:
                terminal.close()

    def through(self, page: str) -> None:
        blocks = deque(BLOCK.findall((ROOT / page).read_text("utf-8")))
        while blocks:
            language, text = blocks.popleft()
            if language == "console":
                is_shown = bool(blocks) and blocks[0][0] == "text"
                self._type(text, blocks.popleft()[1] if is_shown else None)
            elif language == "text":
                assert self._open is not None, f"nothing serves that shows this:\n{text}"
                self._open.shows(text)
            else:
                named = _FILE.match(text)
                assert named, f"which file is this?\n{text}"
                self._write(self.directory / named[1], named[2], text)

    def _type(self, console: str, shown: str | None) -> None:
        commands = [line.removeprefix("$ ") for line in console.splitlines()]
        script = " && ".join(line for line in commands if not line.startswith("pip install "))
        if not script:
            return
        terminal = _Terminal(script, self.directory)
        self._terminals.append(terminal)
        self.directory = self.directory.joinpath(*re.findall(r"\bcd (\S+)", script))
        if script.endswith(SERVING):
            self._open = terminal
        terminal.shows(shown or "")
        if terminal is not self._open:
            terminal.shows_all(shown)

    def _write(self, path: Path, function: str | None, text: str) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(_replaced(path.read_text(), function, text) if function else text)


class _Terminal(LiveTerminal):
    """A script of bash, and how much of what it has printed was compared."""

    def __init__(self, script: str, directory: Path) -> None:
        super().__init__(["bash", "-c", script], 100, 24, cwd=directory)
        self._compared = 0

    @property
    def printed(self) -> str:
        _ = self.lines  # reads what it has sent
        return _squeezed(_CONTROL.sub("", self.sent.decode(errors="replace")))

    def shows(self, text: str) -> None:
        """Wait until it has printed this, behind what was compared before; type each `^C`."""
        *typed, last = text.split("^C")
        for part in typed:
            self._wait_for(part)
            self.type(CTRL_C)
        self._wait_for(last)

    def shows_all(self, text: str | None) -> None:
        """Wait for its end; it has printed nothing else, or has succeeded."""
        code = self.ended(_WITHIN_S)
        if text is None:
            assert code == 0, self.printed
        else:
            assert re.fullmatch(_pattern(text), self.printed), self._unlike(text)

    def _wait_for(self, text: str) -> None:
        pattern = re.compile(_pattern(text))
        with suppress(AssertionError):  # the one below says more
            until(
                lambda: (
                    pattern.search(self.printed, self._compared) or self.process.poll() is not None
                ),
                _WITHIN_S,
            )
        found = pattern.search(self.printed, self._compared)
        assert found, self._unlike(text)
        self._compared = found.end()

    def _unlike(self, text: str) -> str:
        return f"the page shows\n{text}\nand this was printed\n{self.sent.decode()}"


def _squeezed(text: str) -> str:
    """One blank in place of many, and one sign in place of a line of a picture."""
    return re.sub("─+", "─", " ".join(text.split()))


def _pattern(shown: str) -> str:
    """What matches this and what differs from it as `VARIES` and `…` allow."""
    text, parts, at = _squeezed(shown), [], 0
    for match in VARIES.finditer(text):
        parts += [re.escape(text[at : match.start()]), f"(?:{VARIES.pattern})"]
        at = match.end()
    parts.append(re.escape(text[at:]))
    return re.sub(r"(?:\\ )?…(?:\\ )?", ".*?", "".join(parts))


def _replaced(source: str, function: str, text: str) -> str:
    """The source with this text in place of a function and its decorators."""
    (old,) = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function
    ]
    first = min(each.lineno for each in (old, *old.decorator_list))
    lines = source.splitlines(keepends=True)
    lines[first - 1 : old.end_lineno] = [text.partition("\n")[2]]
    return "".join(lines)
