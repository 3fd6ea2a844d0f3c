"""The operation of a migration that installs our schema in Django's own transaction."""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from pgflowd.db import schema

_VERSION = "select max(version) from pgflowd.schema_history where name <> 'functions'"
_IS_THERE = "select to_regclass('pgflowd.schema_history') is not null"


class InstallSchema(Operation):  # type: ignore[misc,unused-ignore]
    """Brings the database to the schema that the installed pgflowd needs."""

    reversible = False
    atomic = True

    def __init__(self, from_version: int | None = None) -> None:
        self.from_version = from_version

    def deconstruct(self) -> tuple[str, list[Any], dict[str, Any]]:
        given = {} if self.from_version is None else {"from_version": self.from_version}
        return "InstallSchema", [], given

    def state_forwards(self, app_label: str, state: Any) -> None:
        """No model changes."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        if schema_editor.connection.vendor != "postgresql":
            return
        found: int | None = None
        with schema_editor.connection.cursor() as cursor:
            cursor.execute(_IS_THERE)
            if cursor.fetchone()[0]:
                cursor.execute(_VERSION)
                found = cursor.fetchone()[0]
        if self.from_version is not None and (found or 0) < self.from_version:
            raise ValueError(
                f"the schema of pgflowd is at version {found or 'none'}, and this migration begins"
                f" from {self.from_version}; add one with migration() before it"
            )
        schema_editor.execute(schema.sql(found), params=None)

    def database_backwards(self, *args: Any) -> None:
        raise NotImplementedError("the schema of pgflowd has no way back; restore a backup")

    def describe(self) -> str:
        return "Install or upgrade the schema of pgflowd"
