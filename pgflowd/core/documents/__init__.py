"""
Documents about runs, flows and the daemon, for programs and screens: dataclasses with `to_json`.

`--json` prints these and nothing else; the screens draw from the same objects. Rows of the
database are read into them in `db`. Their JSON Schemas in `pgflowd/contract` are made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

SCHEMA_VERSION = 1


def plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as JSON has them: moments in ISO 8601 and UTC, ids as text."""
    return {key: _plain(value) for key, value in fields.items()}


def versioned(fields: Mapping[str, Any]) -> dict[str, Any]:
    """A whole document: the fields after the version of their format."""
    return {"schema_version": SCHEMA_VERSION, **fields}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID) else value
