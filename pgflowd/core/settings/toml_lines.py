"""
Finds the line of each key in a TOML text, because `tomllib` does not report lines.

`tomllib` has already accepted the text, so this walk does not check it. It passes over dotted and
quoted keys, tables and arrays of tables, inline tables, nested arrays, comments and the four kinds
of strings. A key's path is a tuple of names; elements of arrays count from 0. Pure.
"""

from __future__ import annotations

import re
import tomllib

TomlPath = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.S,
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def lines_of(text: str) -> dict[TomlPath, int]:
    """Return the line of each key and table of a valid TOML text, counted from 1."""
    return _Walk(text.replace("\r\n", "\n")).run()


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[TomlPath, int] = {}
        self.arrays: dict[TomlPath, int] = {}  # arrays of tables: the last index
        self.line, self.counted = 1, 0

    def run(self) -> dict[TomlPath, int]:
        table: TomlPath = ()
        while self._skip(_BLANK) < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
        return self.lines

    def _header(self) -> TomlPath:
        """Read a [table] or an [[array of tables]]."""
        many = self.text.startswith("[[", self.at)
        line = self._line()
        self.at += 2 if many else 1
        names = self._names()
        self.at += 2 if many else 1
        path: TomlPath = ()
        for name in names[:-1]:
            self._note((*path, name), line)
            path = self._inside((*path, name))
        path = (*path, names[-1])
        if many:
            self.arrays[path] = self.arrays.get(path, -1) + 1
            self._note(path, line)
            path = self._inside(path)
        self._note(path, line)
        return path

    def _inside(self, path: TomlPath) -> TomlPath:
        return (*path, self.arrays[path]) if path in self.arrays else path

    def _pair(self, table: TomlPath) -> None:
        line = self._line()
        path = table
        for name in self._names():
            path = (*path, name)
            self._note(path, line)
        self.at += 1  # the equals sign
        self._value(path)

    def _names(self) -> list[str]:
        """Read a key, perhaps dotted, and the blanks behind it."""
        names = []
        while True:
            self._skip(_SPACE)
            quoted = self.text[self.at] in "\"'"
            word = self._take(_STRING if quoted else _BARE)
            names.append(tomllib.loads(f"key = {word}")["key"] if quoted else word)
            self._skip(_SPACE)
            if not self.text.startswith(".", self.at):
                return names
            self.at += 1

    def _value(self, path: TomlPath) -> None:
        self._skip(_SPACE)
        first = self.text[self.at]
        if first not in "[{":
            self._take(_STRING if first in "\"'" else _SCALAR)
            return
        self.at += 1
        index = 0
        while self._skip(_BLANK) < len(self.text) and self.text[self.at] not in "]}":
            if first == "{":
                self._pair(path)
            else:
                self._note((*path, index), self._line())
                self._value((*path, index))
                index += 1
            self._skip(_BLANK)
            self.at += self.text.startswith(",", self.at)
        self.at += 1

    def _note(self, path: TomlPath, line: int) -> None:
        self.lines.setdefault(path, line)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._take(pattern)
        return self.at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise ValueError(f"line {self._line()} is not valid TOML")
        self.at = match.end()
        return match.group()

    def _line(self) -> int:
        self.line += self.text.count("\n", self.counted, self.at)
        self.counted = self.at
        return self.line
