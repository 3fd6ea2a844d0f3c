"""
What is kept of the output of an attempt: its last lines, within a number of bytes.

A worker has one `KeptOutput` for each running task that has printed or logged something. As text
each line is seconds since the attempt began, a source, and what was printed: `12.3 stdout page 7`.
The source is `stdout`, `stderr`, the level of a log record, or `cut` in the first line if earlier
ones are missing. Secrets are hidden as in the log, line by line, and only where the text is wanted.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

CUT = "cut"
CUT_TEXT = "earlier lines are not kept"
STREAMS = ("stdout", "stderr")
MAX_LINE_CHARS = 8000  # as in the log
LINE_EXTRA = 14  # about what stands before the text of a line
MAX_TAIL_BYTES = 64 * 1024  # of what a task prints beyond what is logged
_LINE = re.compile(r"(\d{1,12}(?:\.\d{1,12})?) (\w{1,40}) ?(.*)", re.S)

Hide = Callable[[str], str]


class KeptOutput:
    """The last lines of an attempt."""

    def __init__(self, size: int, hide: Hide) -> None:
        self._size, self._hide = size, hide
        self._lines: deque[tuple[float, str, str]] = deque()
        self._room = size
        self._is_cut = False

    def add(self, since_s: float, source: str, text: str) -> None:
        """Add a line, or a record of several, and forget the first ones if there is no room."""
        if len(text) > min(MAX_LINE_CHARS, self._size):
            # to the next word, or half of a secret would not be known for one
            text = text[-min(MAX_LINE_CHARS, self._size) :].partition(" ")[2]
            self._is_cut = True
        self._lines.append((since_s, source, text))
        self._room -= len(text) + LINE_EXTRA
        while self._room < 0 and len(self._lines) > 1:
            self._room += len(self._lines.popleft()[2]) + LINE_EXTRA
            self._is_cut = True

    def add_tail(self, since_s: float, source: str, tail: bytes) -> None:
        """Add the last bytes of a stream, which came after all its lines so far."""
        _, *lines = tail.decode("utf-8", "backslashreplace").removesuffix("\n").split("\n")
        self._is_cut = True
        for line in lines:
            self.add(since_s, source, line)

    @property
    def size(self) -> int:
        return self._size - self._room

    def text(self) -> tuple[str, int]:
        """The lines as they are stored, and how many there are."""
        found: list[str] = []
        for since_s, source, text in sorted(self._lines, key=lambda line: line[0]):
            shown = self._hide(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
            found += [f"{since_s:.3f} {source} {line}\n" for line in shown.split("\n")]
        room, first = self._size, len(found)
        while first and (size := len(found[first - 1].encode("utf-8", "replace"))) <= room:
            room, first = room - size, first - 1
        kept = found[first:]
        if self._is_cut or first:
            return f"0 {CUT} {CUT_TEXT}\n{''.join(kept)}", len(kept)
        return "".join(kept), len(kept)


class KeptLine(NamedTuple):
    """A line that a handler printed or logged."""

    since_s: float
    stream: str  # stdout, stderr or log
    level: str
    text: str

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


def read(printed: str) -> tuple[Sequence[KeptLine], bool]:
    """The lines of a text, and whether earlier ones are missing; an odd one stays whole."""
    lines, is_cut = [], False
    for line in printed.removesuffix("\n").split("\n"):
        found = _LINE.fullmatch(line)
        since_s, source, text = found.groups() if found else ("0", "info", line)
        if source == CUT:
            is_cut = True
        elif source in STREAMS:
            lines.append(KeptLine(float(since_s), source, "info", text))
        else:
            lines.append(KeptLine(float(since_s), "log", source, text))
    return lines, is_cut
