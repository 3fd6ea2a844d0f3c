"""
The documentation, as `pgflowd docs` shows it: its contents, its topics, and where words stand; and
what is written about a code, as `pgflowd explain` and the dashboard show it; and JSON Schemas of
documents (draft 2020-12), made from their types when somebody asks.

The contents are those of docs/index.md: a heading for each part, and below it a list of pages, each
a link and a sentence. A topic is the name of a page, with its directory if another page has
the same name. Paths of pages begin below docs/.

Each code has a row in the table of docs/errors/README.md; one whose example is worth reading has a
page there instead: a title, texts, and at the end the links to what is related.

`schema_of` knows what the fields of documents have: plain types, words, moments, ids, other
documents, lists and mappings of these, and unions. What a document or an enum is about is its
docstring; a field says what it means, or has the common meaning of its key.
"""

from __future__ import annotations

import inspect
import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import Enum
from itertools import chain, zip_longest
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin
from uuid import UUID

from pgflowd.core.documents import (
    SCHEMA_VERSION,
    DocumentField,
    DocumentOf,
    Format,
    Hidden,
    Presence,
    Words,
    fields_of,
    is_document,
)
from pgflowd.core.text import CUT, cut, has_words
from pgflowd.errors import GROUPS, TITLES

INDEX = "index.md"
LINK = re.compile(r"!?\[(?P<text>(?:`[^`]*`|[^\]`])*)\]\((?P<target>[^)\s]+)\)")
_PAGE = re.compile(rf"- {LINK.pattern}:?(?P<about>.*)")  # an item of the contents
_MARKS = re.compile(r"`+|\*\*|^(?: *- | *\d+\. |#+ |\| *)|<a id=\S+></a>|\\(?=[\\`*_|<\[])")
_BLOCK_END = re.compile(r"\n(?:[ \t]*\n)+|\n(?=#|```|\||\s*(?:-|\d+\.) )")
_MOST_OF_A_PAGE = 3  # places at which a search shows words; the page has the others
_MAX_CHARS = 160  # of a text around the words that were found
_BEFORE_CHARS = 50  # of them, before the first word
_MAX_NEAREST = 3

_PlacedText = tuple[str | None, str]  # the heading above a text, and the text


@dataclass(frozen=True)
class ListedPage:
    """A page of the contents; `about` is the sentence beside its link."""

    topic: Annotated[str, "by which `docs TOPIC` shows it"]
    title: Annotated[str, "the title of the page"]
    about: Annotated[str, "what the page is about"]
    path: Hidden[str]


@dataclass(frozen=True)
class ContentsPart:
    """A part of the documentation."""

    title: Annotated[str, "what the part is called"]
    pages: list[ListedPage]


@dataclass(frozen=True)
class FoundText:
    """Where words stand. `heading` is that of the section; None: above the first one."""

    topic: Annotated[str, "by which `docs TOPIC` shows the page"]
    title: Annotated[str, "the title of the page"]
    heading: Annotated[str | None, "the heading above the place; null above the first one"]
    text: Annotated[str, "what stands there"]


class TableOfContents:
    """The parts of the documentation, and its pages by their topics."""

    def __init__(self, index: str) -> None:
        listed = list(_listed(index))
        names = Counter(_name(path) for _, _, path, _ in listed)
        parts: dict[str, list[ListedPage]] = {}
        for part, title, path, about in listed:
            topic = _name(path) if names[_name(path)] == 1 else _stem(path)
            parts.setdefault(part, []).append(ListedPage(topic, title, about, path))
        self.parts = [ContentsPart(title, pages) for title, pages in parts.items()]
        self.pages = [page for part in self.parts for page in part.pages]

    def find(self, word: str) -> ListedPage | None:
        """The page that a topic, or the path of a page, names."""
        wanted = word.casefold().lstrip("./").removeprefix("docs/").removesuffix(".md")
        for page in self.pages:
            if wanted in (page.topic.casefold(), page.path.casefold().removesuffix(".md")):
                return page
        return None

    def part_of(self, page: ListedPage) -> ContentsPart:
        return next(part for part in self.parts if page in part.pages)

    def nearest(self, word: str) -> list[ListedPage]:
        """The pages whose topics are most like a word that is none."""
        wanted = word.casefold().removesuffix(".md").rpartition("/")[2]
        names = {_name(page.path): None for page in self.pages}
        close = get_close_matches(wanted[:100], names, n=_MAX_NEAREST)
        found = [page for name in close for page in self.pages if _name(page.path) == name]
        return found[:_MAX_NEAREST]


def found_in(pages: Sequence[tuple[ListedPage, str]], words: str) -> list[FoundText]:
    """
    The places of pages that have all these words: first titles, then headings, then texts, then
    pages that have them here and there.

    Each page is shown where it has the words best.
    """
    wanted = words.split()
    ranks: list[list[FoundText]] = [[], [], [], []]
    for page, text in pages:
        if has_words(f"{page.title} {page.topic}", wanted):
            ranks[0].append(FoundText(page.topic, page.title, None, page.about))
        elif has_words(text, wanted):
            rank, places = _places(list(_texts(text)), wanted)
            ranks[rank] += [
                FoundText(page.topic, page.title, heading, _around(shown, wanted))
                for heading, shown in places[:_MOST_OF_A_PAGE]
            ]
    return list(chain.from_iterable(ranks))


def _places(
    texts: Sequence[_PlacedText], wanted: Sequence[str]
) -> tuple[int, Sequence[_PlacedText]]:
    """The best places of a page that has the words, and how good they are."""
    below: dict[str | None, str] = {}  # the first text below each heading that has them
    for heading, text in texts:
        if heading and text != heading and has_words(heading, wanted):
            below.setdefault(heading, text)
    if below:
        return 1, list(below.items())
    if found := [each for each in texts if has_words(each[1], wanted)]:
        return 2, found
    return 3, [each for each in texts if has_words(each[1], wanted[:1])]


def page_of_link(page: str, target: str) -> str | None:
    """The path of the page that a link of another page leads to; None: it leads elsewhere."""
    path = target.partition("#")[0]
    if not path.endswith(".md") or ":" in path:
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), path))


def _listed(index: str) -> Iterator[tuple[str, str, str, str]]:
    """Part, title, path and sentence of each page of the contents."""
    part = ""
    for block in _BLOCK_END.split(index):
        line = " ".join(block.split())
        if line.startswith("#"):
            part = _plain(line)
        elif part and (item := _PAGE.fullmatch(line)):
            path = page_of_link(INDEX, item["target"])
            if path:
                yield part, _plain(item["text"]), path, _plain(item["about"].strip())


def _stem(path: str) -> str:
    return re.sub(r"(?:/(?:README|index))?\.md$", "", path)


def _name(path: str) -> str:
    return _stem(path).rpartition("/")[2].casefold()


def _texts(text: str) -> Iterator[_PlacedText]:
    """The texts of a page without marks, each with its heading: paragraphs, rows, lines of code."""
    heading, is_code = None, False
    for block in _BLOCK_END.split(text):
        is_code ^= block.startswith("```")
        if is_code:
            for line in block.splitlines()[block.startswith("```") :]:
                yield heading, line.strip()
        elif not block.startswith("```"):
            shown = _plain(" ".join(block.split()))
            if block.startswith("#"):
                heading = shown if block.startswith("##") else None
            yield heading, shown


def _plain(text: str) -> str:
    """A text without the marks of Markdown."""
    return _MARKS.sub("", LINK.sub(r"\g<text>", text)).removesuffix("|").rstrip()


def _around(text: str, wanted: Sequence[str]) -> str:
    """The part of a text that has the first of the words."""
    at = max(text.casefold().find(wanted[0].casefold()), 0)
    begin = text.find(" ", at - _BEFORE_CHARS) + 1 if at > _BEFORE_CHARS else 0
    shown = text[begin:] if begin <= at else text[at:]
    return cut(f"{CUT}{shown}" if len(shown) < len(text) else shown, _MAX_CHARS)


# What is written about codes.
_SEE_ALSO = "\n## See also\n"
_ROW = re.compile(r"^\| ([EW]\d+) \| (.+?) \| (.+?) \|$", re.MULTILINE)


@dataclass(frozen=True)
class ErrorPage:
    """The page of a code."""

    code: str
    title: str
    group: Annotated[str, "what such codes are about"]
    text: Annotated[str, "Markdown: below the title, above what is related"]
    related: Annotated[Sequence[str], "other codes"] = ()
    pages: Annotated[Sequence[str], "files of the documentation"] = ()

    @property
    def markdown(self) -> str:
        """The whole page; what is related is named by commands."""
        parts = [f"# {self.code}: {self.title}", self.text]
        commands = [f"- `pgflowd explain {code}`: {TITLES[code]}" for code in self.related]
        names = [page.removeprefix("docs/").removesuffix(".md") for page in self.pages]
        commands += [f"- `pgflowd docs {name}`" for name in names]
        parts += [_SEE_ALSO.strip(), "\n".join(commands)] if commands else []
        return "\n\n".join(parts)


class ListedCode(NamedTuple):
    """A code in a list."""

    code: str
    title: str
    group: Annotated[str, "what such codes are about"]


@dataclass(frozen=True)
class Codes:
    """`explain` and `explain WORDS` print it. Exit code 4 for words that no page has."""

    codes: Annotated[Sequence[ListedCode], "the codes that were found"]

    @property
    def groups(self) -> dict[str, list[ListedCode]]:
        """They by what they are about."""
        groups: dict[str, list[ListedCode]] = {}
        for code in self.codes:
            groups.setdefault(code.group, []).append(code)
        return groups


def listed_codes(codes: Iterable[str]) -> list[ListedCode]:
    return [ListedCode(code, TITLES[code], GROUPS[code[1]]) for code in codes]


def rows_of(text: str) -> dict[str, tuple[str, str]]:
    """What happened and what to do, by the codes that have no page of their own."""
    return {code: (happened, remedy) for code, happened, remedy in _ROW.findall(text)}


def page_of_row(code: str, row: tuple[str, str]) -> ErrorPage:
    happened = row[0].removeprefix(f"{TITLES[code]}. ")
    return ErrorPage(*listed_codes([code])[0], f"{happened}\n\n## What to do\n\n{row[1]}")


def page_of(code: str, text: str) -> ErrorPage:
    """The page of a code, from its Markdown; ValueError if it has another title."""
    first, _, rest = text.partition("\n")
    if first != f"# {code}: {TITLES[code]}":
        raise ValueError(f"the page of {code} does not begin with its title")
    said, _, see_also = rest.partition(_SEE_ALSO)
    links = [(link["text"], link["target"]) for link in LINK.finditer(see_also)]
    others = [target for text, target in links if text not in TITLES]
    return ErrorPage(
        *listed_codes([code])[0],
        said.strip(),
        [text for text, _ in links if text in TITLES],
        [f"docs/{page}" for each in others if (page := page_of_link(f"errors/{code}.md", each))],
    )


def codes_with(pages: Mapping[str, str], words: str) -> list[str]:
    """The codes whose pages have all these words; those with all of them in the title first."""
    wanted = words.split()
    in_title = [code for code in pages if has_words(TITLES[code], wanted)]
    in_page = [code for code, text in pages.items() if has_words(text, wanted)]
    return list(dict.fromkeys([*in_title, *in_page]))


def nearest_codes(word: str) -> list[str]:
    """The three codes that are most like one that does not exist; none for other words."""
    if not re.fullmatch(r"[A-Za-z]?\d{1,5}", word):
        return []
    letter, digits = word[:1].upper(), re.sub(r"\D", "", word)

    def distance(code: str) -> tuple[int, int, int, bool]:
        differing = sum(one != other for one, other in zip_longest(code[1:], digits))
        is_moved = sorted(code[1:]) == sorted(digits)
        apart = abs(int(code[1:]) - int(digits))
        return min(differing, 1 if is_moved else 9), code[1] != digits[0], apart, code[0] != letter

    return sorted(TITLES, key=distance)[:3]


DIALECT = "https://json-schema.org/draft/2020-12/schema"
Schema = dict[str, Any]
_MAY_LACK = (Presence.OPTIONAL, Presence.UNKNOWN)

_PLAIN: dict[Any, Schema] = {
    Any: {},
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    None: {"type": "null"},
    NoneType: {"type": "null"},
    timedelta: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
    UUID: {"type": "string", "format": "uuid"},
}
_COMMON = {  # meanings of keys that say no other
    "action": "what was done, as `pgflowd log --actions` has it",
    "actor": "who did it",
    "attempt": "which attempt it is, from 1 on",
    "attempts": "how many attempts there were",
    "cancel_reason": "why it was cancelled",
    "changed_at": "when it was changed",
    "changed_by": "who changed it",
    "code": "the code of an error or warning",
    "created_at": "when it was created",
    "detail": "more about it, as a JSON object",
    "directory": "where it is",
    "dry_run": "whether nothing was done, but only counted",
    "ended_at": "when it ended; null before",
    "error": "why it failed",
    "error_type": "the class of the exception, if there was one",
    "failed_at": "when it failed",
    "failure_rate": "the share of failures, from 0 to 1; null if there was none to fail",
    "file": "the name of the file",
    "flow": "the slug of the flow",
    "host": "the name of its machine",
    "max_attempts": "how many attempts there are at most",
    "next": "what to do about it",
    "outcome": "how the attempt ended; null while it runs",
    "paused_at": "when it was paused; null unless it is",
    "paused_by": "who paused it",
    "pause_reason": "why it was paused",
    "pid": "the id of the process; null where there is none",
    "place": "the file and line, or the key",
    "problems": "what is wrong",
    "queued": "how many tasks are queued",
    "restarts": "how often it was started again",
    "run_id": "the id of the run",
    "running": "how many tasks are executed",
    "schema_version": f"the version of the format, which is {SCHEMA_VERSION}",
    "server": "the version of PostgreSQL",
    "session_role": "the role of the server by which whoever did it was connected, if it was kept",
    "share": "how much is done, from 0 to 1; null if that is unknown",
    "started_at": "when it started",
    "step": "the slug of the step",
    "steps": "how many steps there are",
    "task": "the index of the task in its step",
    "token": "the number of the lease of the attempt",
    "undoes": "the flow whose runs it undoes; null for others",
    "up_s": "for how long it is up",
    "waiting": "how many tasks wait for a time, a signal or something else, to 10,000",
    "waits": "how many tasks wait, by what they wait for, each to 10,000",
    "worker_id": "the id of the worker",
}


def schema_of(kind: Any) -> Schema:
    """The schema of a whole document."""
    parts = _Parts()
    schema = parts.document(kind)
    return {"$schema": DIALECT, **schema, **({"$defs": parts.found} if parts.found else {})}


class _Parts:
    """The types that a document is made of, by their names."""

    def __init__(self) -> None:
        self.found: dict[str, Schema] = {}

    def document(self, kind: Any) -> Schema:
        if get_origin(kind) in (Union, UnionType):
            return {"anyOf": [self.document(each) for each in get_args(kind)]}
        if get_origin(kind) is list:  # of problems
            return self.of(kind)
        version = {"description": _COMMON["schema_version"], "const": SCHEMA_VERSION}
        made = self._object(kind)
        made["required"].insert(0, "schema_version")
        made["properties"] = {"schema_version": version, **made["properties"]}
        return made

    def of(self, kind: Any) -> Schema:
        """The schema of values of this type."""
        if kind in _PLAIN:
            return _PLAIN[kind]
        origin, args = get_origin(kind), get_args(kind)
        if origin in (Union, UnionType):
            return _joined([self.of(each) for each in args])
        if origin is Literal:
            return {"enum": list(args)}
        if origin in (dict, Mapping):
            inner = self.of(args[1])
            return {"type": "object", **({"additionalProperties": inner} if inner else {})}
        if origin in (list, tuple, Sequence):
            inner = self.of(args[0])
            return {"type": "array", **({"items": inner} if inner else {})}
        name = kind.__name__
        if name not in self.found:
            self.found[name] = {}  # it may have itself as a part
            if is_document(kind):
                self.found[name] = self._object(kind)
            elif issubclass(kind, Enum):
                words = [str(each.value) for each in kind]
                self.found[name] = {**_about(kind), "type": "string", "enum": words}
            else:
                raise TypeError(f"JSON has no {kind!r}")
        return {"$ref": f"#/$defs/{name}"}

    def _object(self, kind: Any) -> Schema:
        fields = list(_flat(kind))
        return {
            **_about(kind),
            "type": "object",
            "required": [each.key for each in fields if each.mark not in _MAY_LACK],
            "properties": {each.key: self._property(each) for each in fields},
        }

    def _property(self, field: DocumentField) -> Schema:
        means = field.meaning or _COMMON.get(field.key, "")
        made = self.of(field.type)
        if field.mark is Presence.OPTIONAL:  # where it is there, it is not null
            kinds = get_args(field.type) if NoneType in get_args(field.type) else (field.type,)
            made = _joined([self.of(each) for each in kinds if each is not NoneType])
        for note in field.notes:
            if isinstance(note, Format):
                made = {**made, "format": str(note)}
            elif isinstance(note, DocumentOf):
                made = self.document(note.type)
            elif isinstance(note, Words):
                made = {"enum": [str(each) for each in note]}
        return {**({"description": means} if means else {}), **made}


def _flat(kind: Any) -> Sequence[DocumentField]:
    """The fields of a document, with those of parts whose keys it has."""
    found: dict[str, DocumentField] = {}
    for field in fields_of(kind):
        inner = _flat(field.type) if field.mark is Presence.INLINE else [field]
        found |= {each.key: each for each in inner}
    return list(found.values())


def _about(kind: Any) -> Schema:
    """What a type is about."""
    text = " ".join(inspect.cleandoc(kind.__doc__ or "").split())
    is_made = text.startswith(f"{kind.__name__}(") or not text  # by the dataclass itself
    return {} if is_made else {"description": text}


def _joined(schemas: Sequence[Schema]) -> Schema:
    """One of these; plain types are listed."""
    if {} in schemas:
        return {}
    null, others = {"type": "null"}, [each for each in schemas if each != {"type": "null"}]
    if len(schemas) == 1:
        return schemas[0]
    if len(others) == 1 and len(schemas) == 2 and isinstance(others[0].get("type"), str):
        return {**others[0], "type": [others[0]["type"], "null"]}
    if len(others) == 1 and "enum" in others[0]:
        return {"enum": [*others[0]["enum"], None]}
    return {"anyOf": [*others, *([null] if null in schemas else [])]}
