"""
Draws a screen by what differs from the screen before. Pure.

Each line is cut to the width, and what could control the terminal is escaped; colours pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pgflowd.cli.terminal.screen import CUT, Screen, columns, text_width
from pgflowd.core.redact import one_line

CLEAR = "\x1b[H\x1b[2J"
_COLOUR = re.compile(r"(\x1b\[[0-9;]*m)")
_PLAIN = "\x1b[0m"


def fitted(lines: Sequence[str], screen: Screen, height: int) -> list[str]:
    """So many lines, none wider than the screen."""
    shown = [_fitted(line, screen) for line in lines[:height]]
    return shown + [""] * (height - len(shown))


def differences(before: Sequence[str] | None, now: Sequence[str]) -> str:
    """What makes the screen `now` of the one before; of None, whatever the terminal shows."""
    drawn = [CLEAR] if before is None else []
    old = [""] * len(now) if before is None else before
    for row, (was, line) in enumerate(zip(old, now, strict=True), start=1):
        if was != line:
            # cleared first: behind the last column the cursor stays on it, and would clear that
            drawn.append(f"\x1b[{row};1H\x1b[K{line}")
    return "".join(drawn)


def _fitted(line: str, screen: Screen) -> str:
    """A line that is safe, in characters that the screen has, and not wider than it."""
    pieces = [
        piece if at % 2 else _shown(piece, screen) for at, piece in enumerate(_COLOUR.split(line))
    ]
    whole = "".join(pieces)
    width = screen.width or 80
    if columns(whole) <= width:
        return whole
    sign = screen.sign(CUT)
    room, kept = width - len(sign), ""
    for at, piece in enumerate(pieces):
        if at % 2:
            kept += piece
            continue
        for char in piece:
            room -= text_width(char)
            if room < 0:
                return f"{kept}{sign}{_PLAIN if len(pieces) > 1 else ''}"
            kept += char
    return kept


def _shown(text: str, screen: Screen) -> str:
    safe = one_line(text)
    return safe if screen.unicode else safe.encode("ascii", "backslashreplace").decode()
