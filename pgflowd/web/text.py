"""
Text for pages: made safe to show, and in the words that all pages use.

Templates and SVG escape what HTML would read as markup. What is left are characters that a browser
obeys or hides: those that control, and those that turn the direction of writing around. They are
shown as escapes, as in a terminal: by `visible` in all that a template writes, so that no filter is
forgotten. The filter `line` also keeps a text on one line, and cuts it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.token import Token
from markupsafe import Markup

from pgflowd.core.documents.run_tasks import ValuePart
from pgflowd.core.redact import one_line, safe_lines
from pgflowd.core.statuses import Status, TaskStatus
from pgflowd.core.text import size
from pgflowd.errors import PgflowdError

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


MAX_LEVELS = 4
MAX_MEMBERS = 200  # of the whole tree
MAX_TEXT = 2000  # characters of a string
MAX_PATH_CHARS = 2000

Path = tuple[str, ...]


@dataclass(frozen=True)
class JsonBranch:
    """A value, with the values in it as far as they are shown."""

    kind: str  # object, array, string, number, boolean, null
    text: str  # of a leaf its value
    path: Path
    length: int = 0  # how many members it has
    members: Sequence[tuple[str, JsonBranch]] = ()
    is_cut: bool = False  # there is more of it at its path
    next: int | None = None  # the first member, or character, that is not shown

    @property
    def is_leaf(self) -> bool:
        return self.kind not in ("object", "array")

    @property
    def pointer(self) -> str:
        """Its path as a JSON pointer (RFC 6901), which addresses have."""
        return "".join(f"/{name.replace('~', '~0').replace('/', '~1')}" for name in self.path)


def tree_of(part: ValuePart) -> JsonBranch:
    """The tree of a part of a value."""
    path, budget = tuple(part.path), [MAX_MEMBERS]
    if part.type == "string" and len(part.value) > MAX_TEXT:
        text = json.dumps(part.value[:MAX_TEXT], ensure_ascii=False)
        return JsonBranch("string", text, path, is_cut=True, next=part.start + MAX_TEXT)
    if part.type not in ("object", "array"):
        text = json.dumps(part.value, ensure_ascii=False)
        return JsonBranch(part.type, text, path, is_cut=not part.is_whole, next=part.next)
    budget[0] -= len(part.members)
    members = []
    for member in part.members:
        place = (*path, member.name)
        if member.is_whole:
            branch = _branch(member.value, place, len(path) + MAX_LEVELS, budget)
        else:
            text = "" if member.value is None else json.dumps(member.value, ensure_ascii=False)
            branch = JsonBranch(member.type, text, place, member.length or 0, is_cut=True)
        members.append((member.name, branch))
    return JsonBranch(part.type, "", path, part.length or 0, members, next=part.next)


def _branch(value: Any, path: Path, deepest: int, budget: list[int]) -> JsonBranch:
    if isinstance(value, dict | list):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        room = 0 if len(path) >= deepest else budget[0]
        budget[0] -= min(room, len(value))
        members = [
            (str(name), _branch(member, (*path, str(name)), deepest, budget))
            for name, member in islice(pairs, room)
        ]
        kind = "object" if isinstance(value, dict) else "array"
        return JsonBranch(kind, "", path, len(value), members, len(members) < len(value))
    text = json.dumps(value, ensure_ascii=False)
    if len(text) > MAX_TEXT:
        return JsonBranch("string", f"{text[:MAX_TEXT]} … {size(len(value))}", path, is_cut=True)
    kinds = {type(None): "null", bool: "boolean", str: "string"}
    return JsonBranch(kinds.get(type(value), "number"), text, path)


def path_of(pointer: str) -> Path:
    """The path that a JSON pointer says."""
    if (pointer and not pointer.startswith("/")) or len(pointer) > MAX_PATH_CHARS:
        raise PgflowdError("this path is no JSON pointer", code="E506", next="begin it with /")
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in pointer.split("/")[1:])


_TARGET = re.compile(r"https?://|[^:/\\%][^:]*\Z", re.IGNORECASE)  # the web, and relative ones


def of_markdown(text: str) -> Markup:
    """The HTML of a text; what a browser would obey or hide is shown."""
    return Markup(_PARSER.render(visible(text)))


def _fence(_self: Any, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
    kind = "printed" if tokens[at].info.strip() == "text" else "code"
    return f'<pre class="{kind}" tabindex="0">{escapeHtml(tokens[at].content)}</pre>\n'


_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_PARSER.validateLink = lambda url: _TARGET.match(url) is not None  # type: ignore[method-assign]
_PARSER.add_render_rule("fence", _fence)
