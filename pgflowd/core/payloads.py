"""
What the dashboard shows of inputs, outputs and payloads, as `[web] payloads` says. Pure.

`Payloads.of` takes a document and returns it with its values as they may be shown. It is called
where documents are read, so that pages, the API and streams show the same. Unless all is shown,
labels are treated as values, and in every other text, such as an error, what looks like a secret is
hidden as it is in the log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar

from pgflowd.core.documents.run_tasks import ValueMember, ValuePart
from pgflowd.core.redact import HIDDEN, redact, redact_value
from pgflowd.core.text import counted, size

T = TypeVar("T")
LABELS = "labels"
VALUES = frozenset({"input", "output", "flow_input", "payload", "data"})  # fields of documents


@dataclass(frozen=True)
class Payloads:
    """How values are shown; `keys` are those of `[logging] redact`, in lower case."""

    mode: str = "shown"  # | "redacted" | "hidden"
    keys: frozenset[str] = frozenset()

    def of(self, document: T) -> T:
        """Return the document with its values as they may be shown."""
        return document if self.mode == "shown" else self._within(document)

    def show(self, value: Any) -> Any:
        """Return a value as it may be shown; what is absent stays so."""
        if value is None or self.mode == "shown":
            return value
        if self.mode == "hidden":
            text = json.dumps(value, ensure_ascii=False, default=str)
            return f"{HIDDEN} {size(len(text.encode('utf-8', 'backslashreplace')))}"
        return redact_value(value, self.keys)

    def _within(self, part: Any) -> Any:
        if isinstance(part, ValuePart):
            return self._part(part)
        if is_dataclass(part) and not isinstance(part, type):
            changes = {}
            for each in fields(part):
                before = getattr(part, each.name)
                if each.name in VALUES:
                    after = self.show(before)
                elif each.name == LABELS and before is not None:
                    after = self._within(redact_value(before, self.keys))
                else:
                    after = self._within(before)
                if after is not before:
                    changes[each.name] = after
            return replace(part, **changes) if changes else part
        if type(part) is str:  # and no status
            return redact(part)
        if isinstance(part, Mapping):
            return {key: self._within(each) for key, each in part.items()}
        if isinstance(part, list | tuple) and not hasattr(part, "_fields"):
            return type(part)([self._within(each) for each in part])
        return part

    def _part(self, part: ValuePart) -> ValuePart:
        """A part of a value, which may lie below a key that is hidden, or have one."""
        if self.mode == "hidden":
            length = ""  # the database tells no bytes of a part
            if part.length is not None:
                noun = "character" if part.type == "string" else "member"
                length = f" of {counted(part.length, noun)}"
            return _hidden(part, f"{HIDDEN} {part.type}{length}")
        if self.keys.intersection(key.lower() for key in part.path):
            return _hidden(part, HIDDEN)
        members = [self._member(member) for member in part.members]
        return replace(part, value=self.show(part.value), members=members)

    def _member(self, member: ValueMember) -> ValueMember:
        if member.name.lower() in self.keys:
            return replace(member, type="string", length=None, is_whole=True, value=HIDDEN)
        return replace(member, value=self.show(member.value))


def _hidden(part: ValuePart, text: str) -> ValuePart:
    return replace(part, type="string", value=text, members=(), length=None, is_whole=True)
