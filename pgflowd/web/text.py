"""
Text for pages: made safe to show, and in the words that all pages use.

Templates and SVG escape what HTML would read as markup. What is left are characters that a browser
obeys or hides: those that control, and those that turn the direction of writing around. They are
shown as escapes, as in a terminal: by `visible` in all that a template writes, so that no filter is
forgotten. The filter `line` also keeps a text on one line, and cuts it.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

from pgflowd.core.redact import one_line, safe_lines
from pgflowd.core.statuses import Status, TaskStatus

_NOT_IN_XML = re.compile("[\ufffe\uffff]")
_NOT_IN_IDS = re.compile("[^A-Za-z0-9_-]")
_RUNNING = (TaskStatus.STARTED, TaskStatus.LEASED)  # the first one is also that of steps and runs


def visible(text: str) -> str:
    """Lines with escapes: what each expression of a template passes, whatever its filter does."""
    return _NOT_IN_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", safe_lines(text))


def shown(text: str, limit: int | None = None) -> str:
    """The text on one line, with escapes; a longer one is cut."""
    return _NOT_IN_XML.sub(lambda found: f"\\u{ord(found[0]):04x}", one_line(text, limit))


def shown_lines(text: str) -> str:
    """The same of a text of several lines, which stay; tabs are blanks."""
    return "\n".join(shown(line.expandtabs()) for line in text.split("\n"))


def number(value: int) -> str:
    """With thousands apart: `61,240`."""
    return f"{value:,}"


def iso(at: datetime) -> str:
    """A moment as `<time datetime>` has it."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def status_word(status: Status) -> str:
    """What pages call a status."""
    return "running" if status in _RUNNING else status.replace("_", " ")


def status_class(status: Status) -> str:
    """The classes of what has a status: its own, and its colour."""
    return f"status-{as_id(status)} {status.mark.colour or 'plain'}"


def as_id(name: object) -> str:
    """A name as a part of an element's id: whatever it holds, another name gives another id."""
    return _NOT_IN_IDS.sub(lambda found: f".{ord(found[0]):x}.", str(name))
