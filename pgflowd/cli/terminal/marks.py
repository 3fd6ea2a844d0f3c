"""
Marks: the sign and colour of each status, in Unicode and in ASCII.

Never colour alone: each status has a sign of its own, and the word stands beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from pgflowd.cli.terminal.screen import Screen, TableCell

_MARKS = {  # status: sign with UTF-8, without, colour
    "completed": ("✔", "+", "green"),
    "failed": ("✖", "x", "red"),
    "started": ("▶", ">", "cyan"),
    "created": ("·", ".", None),
    "queued": ("·", ".", None),
    "skipped": ("↷", "~", "yellow"),
    "cancelled": ("⊘", "/", "yellow"),
    "timed_out": ("✖", "x", "red"),
    "crashed": ("✖", "x", "red"),
    "stalled": ("⚠", "!", "yellow"),
    "released": ("↷", "~", "yellow"),
    "late": ("⚠", "!", "yellow"),
    "lost": ("⚠", "!", "yellow"),
}
_UNKNOWN = ("?", "?", None)


@dataclass(frozen=True)
class Mark:
    """A sign on a certain screen."""

    screen: Screen
    text: str
    colour: str | None

    def painted(self, more: str = "") -> str:
        """The sign and what belongs to it, in its colour."""
        return self.screen.paint(f"{self.text}{more}", self.colour)

    def cell(self, more: str = "") -> TableCell:
        """The same for a table."""
        return TableCell(f"{self.text}{more}", self.colour)


def mark(screen: Screen, status: str) -> Mark:
    """The mark of a status."""
    unicode, ascii, colour = _MARKS.get(status, _UNKNOWN)
    return Mark(screen, unicode if screen.unicode else ascii, colour)


def plain(screen: Screen, text: str) -> str:
    """The text as the screen can show it: what we cut off is marked in ASCII, too."""
    return text if screen.unicode else text.replace("…", "...")
