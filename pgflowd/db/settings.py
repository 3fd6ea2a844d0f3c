"""The queries about the settings that all daemons on a database share."""

from __future__ import annotations

import json
from typing import Any

from pgflowd.core.documents.settings import SharedSetting
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows, only


def list_settings() -> Query[list[SharedSetting]]:
    """Return every setting, with what it takes."""
    return Query("select * from pgflowd.list_settings()", (), _read_settings)


def set_setting(name: str, value: Any) -> Query[Any]:
    """Change a setting; return the old value."""
    query = "select pgflowd.set_setting(%s, %s::jsonb, session_user)"
    return Query(query, (name, json.dumps(value)), lambda rows: decode(only(rows)))


def _read_settings(rows: Rows) -> list[SharedSetting]:
    return [SharedSetting(name, decode(value), *others) for name, value, *others in rows]
