"""
The JSON Schemas of what commands print: made from `support.document_table`, and applied.

`python tests/support/documents.py` writes them into `pgflowd/contract`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

import click
from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from pgflowd.cli.main import cli
from pgflowd.core.documents import SCHEMA_VERSION
from support.document_table import DOCUMENTS, TYPES
from support.document_types import Schema, Types
from support.key_meanings import about, described, words_of

PLACE = Path(__file__).parents[2] / "pgflowd" / "contract" / str(SCHEMA_VERSION)
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PARTS = "types.json"  # of documents; here each stands once
BARE = {"runs show --input", "runs show --output", "config schema", "status --metrics"}
SCHEMAS = {command: name for name, (_, found) in DOCUMENTS.items() for command in found}
STREAMS = {"runs follow", "status --watch"} | {one for one in SCHEMAS if one.endswith("--follow")}
FORMATS = FormatChecker()
_FORMS = BARE | STREAMS | set(SCHEMAS)
_SHORT = {"-f": "--follow"}


def files() -> dict[str, str]:
    """The text of each file by its name."""
    types = Types(PARTS)
    for name, each in TYPES.items():
        types.add(name, each)
    errors = types.schema_of([TYPES["Problem"]])
    made = {"errors.json": _file("errors", errors, "Any command prints it on standard error.")}
    for name, (each, commands) in DOCUMENTS.items():
        shown = ", ".join(f"`pgflowd {command} --json`" for command in commands)
        printed = f"{shown} prints it." if shown else "The API of the dashboard answers with it."
        made[f"{name}.json"] = _file(name, types.document(each), printed)
    named = {name: _described_type(name, each) for name, each in sorted(types.schemas.items())}
    parts = _text({"$schema": DIALECT, "$defs": named})
    return {**made, PARTS: parts.replace(f'"{PARTS}#', '"#')}


def check(args: Sequence[str], out: str, err: str) -> None:
    """Hold what a command has printed against its schema, closed: it may have no other keys."""
    words = _words_of(args)
    if "--json" not in args or words in BARE:
        return
    if err.startswith("["):
        validator("errors").validate(json.loads(err))
    if out:
        documents = out.splitlines() if words in STREAMS else [out]
        for document in documents:
            validator(SCHEMAS[words]).validate(json.loads(document))


@cache
def validator(name: str, *, is_closed: bool = True) -> Draft202012Validator:
    """Of the shipped schema of a document; a closed one refuses keys that it does not have."""
    schema, parts = _read(f"{name}.json"), _read(PARTS)
    if is_closed:
        schema = _closed(schema)
        parts["$defs"] = {name: _closed(part) for name, part in parts["$defs"].items()}
        for part in parts["$defs"].values():
            part.pop("unevaluatedProperties", None)  # where it is used there may be more keys
    registry = Registry().with_resource(PARTS, Resource.from_contents(parts))
    return Draft202012Validator(schema, registry=registry, format_checker=FORMATS)


@FORMATS.checks("date-time", raises=ValueError)
def _is_moment(value: object) -> bool:
    """Whether a text is a moment in UTC; formats say nothing about other values."""
    is_text = isinstance(value, str)
    return not is_text or (value.endswith("Z") and bool(datetime.fromisoformat(value)))


def _words_of(args: Sequence[str]) -> str:
    """The words that call a command, with the option that changes what it prints."""
    command: click.Command = cli
    words = []
    for arg in args:
        if isinstance(command, click.Group):
            inner = command.get_command(click.Context(command), arg)
            if inner is not None:
                command = inner
                words.append(arg)
    plain = " ".join(words)
    options = {_SHORT.get(arg, arg) for arg in args}
    return next((f"{plain} {one}" for one in options if f"{plain} {one}" in _FORMS), plain)


def _file(name: str, schema: Schema, printed: str) -> str:
    description = " ".join([printed, about(name)]).rstrip()
    described_one = described(schema, name)
    return _text({"$schema": DIALECT, "description": description, **described_one})


def _described_type(name: str, schema: Schema) -> Schema:
    if "enum" in schema:
        words = [f"`{word}`: {means}" for word, means in words_of(name, schema).items()]
        return {"description": "; ".join(words), **schema}
    return {**({"description": about(name)} if about(name) else {}), **described(schema, name)}


def _text(value: Any) -> str:
    return json.dumps(value, indent=2) + "\n"


def _read(name: str) -> Any:
    return json.loads((PLACE / name).read_text("utf-8"))


def _closed(schema: Any) -> Any:
    """The schema without other keys in any object; types get that where they are used."""
    if isinstance(schema, list):
        return [_closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(one) for key, one in schema.items()}
    is_object = "$ref" in schema or isinstance(schema.get("properties"), dict)
    return {**closed, "unevaluatedProperties": False} if is_object else closed


if __name__ == "__main__":
    made = files()
    PLACE.mkdir(parents=True, exist_ok=True)
    for old in PLACE.glob("*.json"):
        old.unlink()
    for name, text in made.items():
        (PLACE / name).write_text(text, "utf-8")
