"""The JSON Schemas of documents: made from the types, shipped, and strict where they should be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import pytest
from jsonschema import Draft202012Validator, ValidationError
from support import documents
from support.document_table import DOCUMENTS, TYPES
from support.document_types import Keys, Maybe, Types, either
from support.key_meanings import TABLES, described, unused, words_of

from pgflowd.core.documents import plain
from pgflowd.core.statuses import StepStatus

SIGNAL = {
    "schema_version": 1, "signal_id": 2**63 - 1, "run_id": "0195f3a0-0000-7000-8000-000000000001",
    "name": "paid", "payload": 2**70, "dedup": None, "sent_by": "jane",
    "sent_at": "2026-11-19T10:00:00Z", "step": None, "task": None, "consumed_at": None,
    "session_role": "app",
}  # fmt: skip


@dataclass(frozen=True)
class Wheel:
    size: float | None

    def to_json(self) -> dict[str, Any]:
        return {"size": self.size}


@dataclass(frozen=True)
class Cart:
    id: UUID
    made_at: datetime
    status: StepStatus | None
    load: Any
    labels: Mapping[str, str]
    wheels: Sequence[Wheel]
    spare: Wheel | None
    owner: str | None

    def to_json(self, count: int) -> dict[str, Any]:
        document = plain({
            "id": self.id, "at": self.made_at, "status": self.status, "load": self.load,
            "labels": self.labels, "wheels": [wheel.to_json() for wheel in self.wheels],
            "spare": self.spare and self.spare.to_json(), "count": count,
        })  # fmt: skip
        return document if self.owner is None else {**document, "owner": self.owner}


def test_the_shipped_schemas_are_those_of_the_types():
    shipped = {file.name: file.read_text("utf-8") for file in documents.PLACE.glob("*.json")}

    assert shipped == documents.files(), "run `make contract`"


def test_each_key_has_a_meaning_and_each_meaning_a_key():
    types, used = Types(documents.PARTS), set[tuple[str, str]]()
    for name, each in TYPES.items():
        types.add(name, each)
    for name, (each, _) in DOCUMENTS.items():
        described(types.document(each), name, used)
    for name, schema in types.schemas.items():
        if "enum" in schema:
            words_of(name, schema, used)
        else:
            described(schema, name, used)

    known = {"all", *DOCUMENTS, *types.schemas}
    assert unused(used) == []
    assert [name for name in TABLES if name.partition(".")[0] not in known] == []


def test_each_of_them_is_a_schema_and_refers_to_types_that_there_are():
    for file in documents.PLACE.glob("*.json"):
        schema = json.loads(file.read_text("utf-8"))
        Draft202012Validator.check_schema(schema)
    used = "".join(documents.files().values())
    for name in json.loads(documents.files()[documents.PARTS])["$defs"]:
        assert f'#/$defs/{name}"' in used, f"nothing refers to {name}"


def test_the_schema_of_a_type_has_what_its_document_may_have():
    types = Types("types.json")
    types.add("Wheel", Wheel)
    wheel = {"$ref": "types.json#/$defs/Wheel"}

    schema = types.document({Keys: Cart, "kind": either("hand", None), "note": Maybe(str)})

    assert types.schemas["Wheel"]["properties"] == {"size": {"type": ["number", "null"]}}
    assert schema["properties"] == {
        "schema_version": {"const": 1},
        "id": {"type": "string", "format": "uuid"},
        "at": {"type": "string", "format": "date-time"},
        "status": {"anyOf": [{"$ref": "types.json#/$defs/StepStatus"}, {"type": "null"}]},
        "load": {},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "wheels": {"type": "array", "items": wheel},
        "spare": {"anyOf": [wheel, {"type": "null"}]},
        "count": {"type": "integer"},
        "owner": {"type": "string"},
        "kind": {"anyOf": [{"const": "hand"}, {"type": "null"}]},
        "note": {"type": "string"},
    }
    assert set(schema["properties"]) - set(schema["required"]) == {"owner", "note"}


def test_large_integers_are_integers():
    documents.check(["runs", "signal", "--json"], json.dumps(SIGNAL), "")


@pytest.mark.parametrize(
    "change",
    [{"task": "0"}, {"signal_id": None}, {"sent_at": "2026-11-19 10:00"}, {"run_id": "7"},
     {"extra": 1}, {"schema_version": 2}],
)  # fmt: skip
def test_another_type_or_an_unknown_key_is_found_by_tests(change):
    with pytest.raises(ValidationError):
        documents.check(["runs", "signal", "--json"], json.dumps({**SIGNAL, **change}), "")


def test_a_missing_key_is_found_and_users_may_meet_new_ones():
    lacking = {key: value for key, value in SIGNAL.items() if key != "dedup"}
    shipped = documents.validator("signal", is_closed=False)

    with pytest.raises(ValidationError):
        documents.check(["runs", "signal", "--json"], json.dumps(lacking), "")
    shipped.validate({**SIGNAL, "extra": 1})
    with pytest.raises(ValidationError):
        shipped.validate({**SIGNAL, "signal_id": "7", "run_id": 7})
