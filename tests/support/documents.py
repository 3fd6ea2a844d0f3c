"""
Holds the documents that commands print against their schemas; and the keys that clients rely on.

`python tests/support/documents.py` writes the keys of all documents into `KEYS`.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import click
from jsonschema import Draft202012Validator, FormatChecker

from pgflowd.cli.commands.docs import documents
from pgflowd.cli.main import cli
from pgflowd.cli.problems import ShownProblem
from pgflowd.core.documents.documentation import Schema, schema_of

KEYS = Path(__file__).parents[1] / "unit" / "document_keys.txt"
FORMATS = FormatChecker()
_SHORT = {"-f": "--follow"}


def check(args: Sequence[str], out: str, err: str) -> None:
    """Hold what a command has printed against its schema, closed: it may have no other keys."""
    kind = printed_by(args)
    if "--json" not in args or kind is None:
        return
    if err.startswith("["):
        validator(list[ShownProblem]).validate(json.loads(err))
    if out:
        for document in _documents_in(out):
            validator(kind).validate(document)


@cache
def validator(kind: Any) -> Draft202012Validator:
    """Of the schema of a document, which allows no other keys here."""
    return Draft202012Validator(_closed(schema_of(kind)), format_checker=FORMATS)


def _closed(part: Any) -> Any:
    if isinstance(part, list):
        return [_closed(each) for each in part]
    if not isinstance(part, dict):
        return part
    known = {name: _closed(each) for name, each in part.items()}
    return {**known, "additionalProperties": False} if "properties" in part else known


def printed_by(args: Sequence[str]) -> Any:
    """The type of what a command prints with these arguments; None: no document."""
    command: click.Command = cli
    for arg in args:
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), arg) or command
    prints: dict[str, Any] = getattr(command, "prints", {})
    given = [option for option in (_SHORT.get(arg, arg) for arg in args) if option in prints]
    return prints.get(given[0] if given else "")


def keys() -> str:
    """The keys of all documents and of their parts, with their types."""
    lines, parts = [], dict[str, Schema]()
    for name, kind in documents().items():
        schema = schema_of(list[kind])  # which refers to the type
        parts |= schema["$defs"]
        lines.append(f"{name}: {_shape(schema['items'])}")
    lines += [f"{name}: {_shape(parts[name])}" for name in sorted(parts)]
    return "".join(f"{line}\n" for each in lines for line in _wrapped(each))


def _wrapped(line: str) -> Iterable[str]:
    return textwrap.wrap(
        line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _shape(schema: Schema) -> str:
    """A schema in few words."""
    if "properties" in schema:
        needed = schema["required"]
        found = schema["properties"].items()
        shown = (f"{key}{'' if key in needed else '?'} {_shape(one)}" for key, one in found)
        return ", ".join(each for each in shown if not each.startswith("schema_version"))
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return "|".join(f"({_shape(one)})" if "properties" in one else _shape(one)
                        for one in schema["anyOf"])  # fmt: skip
    if "enum" in schema:
        return "|".join("null" if word is None else f"'{word}'" for word in schema["enum"])
    kinds = schema.get("type", "any")
    if kinds == "array":
        return f"[{_shape(schema.get('items', {}))}]"
    if kinds == "object":
        return f"{{{_shape(schema.get('additionalProperties', {}))}}}"
    if isinstance(kinds, list):
        return "|".join(_shape({**schema, "type": each}) for each in kinds)
    return str(schema.get("format", kinds))


def _documents_in(out: str) -> list[Any]:
    """One document, or those of a stream, each on its line."""
    try:
        return [json.loads(out)]
    except json.JSONDecodeError:
        return [json.loads(line) for line in out.splitlines()]


@FORMATS.checks("date-time", raises=ValueError)
def _is_moment(value: object) -> bool:
    """Whether a text is a moment in UTC; formats say nothing about other values."""
    is_text = isinstance(value, str)
    return not is_text or (value.endswith("Z") and bool(datetime.fromisoformat(value)))


if __name__ == "__main__":
    sys.stdout.write(f"{KEYS}\n")
    KEYS.write_text(keys(), "utf-8")
