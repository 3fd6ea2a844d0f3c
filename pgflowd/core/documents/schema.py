"""
JSON Schemas of documents (draft 2020-12), made from their types when somebody asks.

`schema_of` knows what the fields of documents have: plain types, words, moments, ids, other
documents, lists and mappings of these, and unions. What a document or an enum is about is its
docstring; a field says what it means, or has the common meaning of its key.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pgflowd.core.documents import (
    SCHEMA_VERSION,
    DocumentField,
    DocumentOf,
    Format,
    Presence,
    Words,
    fields_of,
    is_document,
)

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
