"""The page of JSON documents, from their JSON Schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import click

from pgflowd.cli.main import cli
from support import documents
from support.document_table import DOCUMENTS
from support.document_types import Schema
from support.key_meanings import about, pages_about, words_of
from support.references.markdown import MADE, code, page, paragraph, prose, table

_ABOUT = f"""\
What commands print with `--json`, with the type and the meaning of each key. [For
programs](programs.md#json) has the rules that all documents follow. The JSON Schemas are in the
package, in `pgflowd/contract/1`: a file for each document, such as `run-list.json`, and
`types.json` with the types that they share. {MADE}"""
_TYPES = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
    "array": "list",
}
_FORMS = {"date-time": "time", "uuid": "id"}
_ONLY_API = "Of the dashboard"


def documents_page() -> str:
    schemas = {
        name.removesuffix(".json"): json.loads(text) for name, text in documents.files().items()
    }
    types = schemas.pop("types")["$defs"]
    parts = [paragraph(_ABOUT)]
    of_groups = _by_group()
    index = [
        f"- {group}: {', '.join(f'[{name}](#{name})' for name in names)}"
        for group, names in of_groups.items()
    ]
    parts += ["## All documents", "\n".join(index)]
    for name in chain.from_iterable(of_groups.values()):
        parts += _document(name, schemas[name])
    parts += ["## Types", paragraph("Parts of several documents, and words.")]
    for name in sorted(types):
        parts += _type(name, types[name])
    return page("JSON documents", *parts)


def _by_group() -> dict[str, list[str]]:
    """The documents by the first word of their first command, in the order of the help."""
    groups: dict[str, list[str]] = {name: [] for name in cli.list_commands(click.Context(cli))}
    alone = []
    for name, (_, commands) in DOCUMENTS.items():
        (groups[commands[0].split()[0]] if commands else alone).append(name)
    return {
        "Errors": ["errors"],
        **{group: names for group, names in groups.items() if names},
        _ONLY_API: alone,
    }


def _document(name: str, schema: Schema) -> Iterator[str]:
    yield f"## {name}"
    commands = DOCUMENTS[name][1] if name in DOCUMENTS else []
    printed = ", ".join(code(command) for command in commands)
    first = f"{printed} {'prints' if len(commands) == 1 else 'print'} it." if commands else ""
    if name == "errors":
        first = "Every command prints a list of these on standard error."
    see = ", ".join(f"[{each.split('/')[-1]}](../{each})" for each in pages_about(name))
    text = " ".join(each for each in (first, about(name), f"See {see}." if see else "") if each)
    if text:
        yield paragraph(text)
    yield from _keys(schema)


def _type(name: str, schema: Schema) -> Iterator[str]:
    yield f"### Type {name}"
    if "enum" in schema:
        words = words_of(name, schema)
        yield table(("word", "means"), [(code(word), prose(words[word])) for word in words])
        return
    if about(name):
        yield paragraph(about(name))
    yield from _keys(schema)


def _keys(schema: Schema) -> Iterator[str]:
    """The tables of the keys of an object, or of each of several that it may be."""
    if schema.get("type") == "array":
        yield f"A list of {_kind(schema['items'])}."
        return
    for number, one in enumerate(schema.get("anyOf", [schema])):
        rows = list(_rows(one, ""))
        base = f"all keys of {_kind({'$ref': one['$ref']})}" if "$ref" in one else ""
        lead = "Or " if number else ""
        if base:
            yield f"{lead or 'It has '}{base}{', and:' if rows else '.'}"
        elif lead:
            yield "Or:"
        if rows:
            yield table(("key", "type", "is"), rows)


def _rows(schema: Schema, prefix: str) -> Iterator[list[str]]:
    needed = schema.get("required", [])
    for key, one in schema.get("properties", {}).items():
        if key == "schema_version":
            continue
        missing = "" if key in needed else ", or missing"
        yield [code(prefix + key), _kind(one) + missing, prose(one["description"])]
        for inner, dots in _inside(one):
            yield from _rows(inner, f"{prefix}{key}{dots}.")


def _inside(schema: Schema) -> Iterator[tuple[Schema, str]]:
    """The objects within a value whose keys stand nowhere else."""
    for one in schema.get("anyOf", [schema]):
        if "properties" in one:
            yield one, ""
        elif isinstance(one.get("items"), dict):
            yield from ((inner, "[]" + dots) for inner, dots in _inside(one["items"]))


def _kind(schema: Schema) -> str:
    """The type of a value, in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#type-{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_kind(one) for one in schema["anyOf"])
    if "const" in schema or "enum" in schema:
        words = schema.get("enum", [schema.get("const")])
        return " or ".join("null" if word is None else code(word) for word in words)
    if "type" not in schema:
        return "any"
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return " or ".join(_plain(kind, schema) for kind in kinds)


def _plain(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array" and schema.get("items"):
        return f"list of {_kind(schema['items'])}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_kind(schema['additionalProperties'])}"
    if kind == "string":
        return _FORMS.get(schema.get("format", ""), "text")
    return _TYPES[kind]
