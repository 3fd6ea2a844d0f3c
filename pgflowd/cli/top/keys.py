"""
Reads keys from the bytes that a terminal sends. Pure.

A key is a character, or a `NamedKey`. An escape sequence that is not known is no key, so a
terminal that answers something disturbs nothing.
"""

from __future__ import annotations

import codecs
import re
from enum import StrEnum


class NamedKey(StrEnum):
    """The keys that are no characters."""

    UP = "up"
    DOWN = "down"
    PAGE_UP = "page up"
    PAGE_DOWN = "page down"
    HOME = "home"
    END = "end"
    ENTER = "enter"
    ESCAPE = "escape"
    BACKSPACE = "backspace"


_SEQUENCES = {
    "[A": NamedKey.UP, "OA": NamedKey.UP, "[B": NamedKey.DOWN, "OB": NamedKey.DOWN,
    "[5~": NamedKey.PAGE_UP, "[6~": NamedKey.PAGE_DOWN,
    "[H": NamedKey.HOME, "OH": NamedKey.HOME, "[1~": NamedKey.HOME, "[7~": NamedKey.HOME,
    "[F": NamedKey.END, "OF": NamedKey.END, "[4~": NamedKey.END, "[8~": NamedKey.END,
}  # fmt: skip
_SINGLE = {
    "\r": NamedKey.ENTER,
    "\n": NamedKey.ENTER,
    "\x7f": NamedKey.BACKSPACE,
    "\x08": NamedKey.BACKSPACE,
}
_WHOLE = re.compile(r"\[[0-?]*[ -/]*[@-~]|O[ -~]")
_BEGUN = re.compile(r"(\[[0-?]*[ -/]*|O)?\Z")


class KeyReader:
    """Makes keys of bytes as they come, and keeps what is not whole yet."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    @property
    def is_waiting(self) -> bool:
        """Whether the bytes so far end within a sequence, or with Escape."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[str]:
        """The keys that are whole now."""
        text, self._rest = self._rest + self._decoder.decode(data), ""
        keys: list[str] = []
        at = 0
        while at < len(text):
            char = text[at]
            at += 1
            if char != "\x1b":
                keys += _key_of(char)
            elif whole := _WHOLE.match(text, at):
                keys += [_SEQUENCES[whole[0]]] if whole[0] in _SEQUENCES else []
                at = whole.end()
            elif _BEGUN.match(text, at):
                self._rest = text[at - 1 :]
                break
            else:
                keys.append(NamedKey.ESCAPE)
        return keys

    def end_waiting(self) -> list[str]:
        """Nothing has followed for a while: an Escape alone was the key."""
        rest, self._rest = self._rest, ""
        return [NamedKey.ESCAPE] if rest == "\x1b" else []


def _key_of(char: str) -> list[str]:
    if char in _SINGLE:
        return [_SINGLE[char]]
    return [char] if char.isprintable() else []
