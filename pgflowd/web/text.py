"""
Text for pages: made safe to show, and in the words that all pages use.

Templates and SVG escape what HTML would read as markup. What is left are characters that a browser
obeys or hides: those that control, and those that turn the direction of writing around. They are
shown as escapes, as in a terminal.
"""

from __future__ import annotations

import re

from pgflowd.core.redact import one_line
from pgflowd.core.statuses import Status, TaskStatus

_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_NOT_IN_IDS = re.compile("[^A-Za-z0-9_]")
_RUNNING = (TaskStatus.STARTED, TaskStatus.LEASED)  # the first one is also that of steps and runs


def shown(text: str, limit: int | None = None) -> str:
    """The text on one line, with escapes; a longer one is cut."""
    return _NOT_IN_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", one_line(text, limit))


def shown_lines(text: str) -> str:
    """The same with its lines and tabs as they are."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in lines)


def number(value: int) -> str:
    """With thousands apart: `61,240`."""
    return f"{value:,}"


def status_word(status: Status) -> str:
    """What pages call a status."""
    return "running" if status in _RUNNING else status.replace("_", " ")


def element_id(kind: str, *names: str) -> str:
    """The id of an element about something with these names; other names have another id."""
    safe = (_NOT_IN_IDS.sub(lambda found: f"-{ord(found[0]):x}-", name) for name in names)
    return ".".join([kind, *safe])
