"""Tests of the SQL files: their order, and what none may hold."""

from __future__ import annotations

import re

from support.schema import Connection

from pgflowd.db.schema.state import migrations, schema_files
from pgflowd.resources import schema_version, shipped


def test_tables_come_after_the_tables_they_refer_to() -> None:
    seen: set[str] = set()
    for file in schema_files():
        if file.is_table:
            _, schema, _, name = file.path.removesuffix(".sql").split("/")
            seen.add(f"{schema}.{name}")
            assert set(re.findall(r"references (\w+\.\w+)", file.text)) <= seen, file.path


def test_migrations_are_numbered_without_gaps() -> None:
    assert [step.version for step in migrations()] == list(range(1, schema_version() + 1))


def test_a_migration_changes_the_schema_it_is_named_after() -> None:
    for step in migrations():
        other = "pgflow." if step.name.startswith("pgflowd_") else "pgflowd."
        changed = re.findall(
            r"(?:create|alter|drop) \w+ (?:if (?:not )?exists )?(\w+\.)", step.file.text
        )
        assert other not in changed


def test_no_file_holds_what_only_psql_understands() -> None:
    for path in shipped("sql").rglob("*.sql"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?m)^\\", text), path
        assert "concurrently" not in text.lower(), path


def test_every_function_with_its_owners_rights_has_an_empty_search_path(conn: Connection) -> None:
    query = (
        "select oid::regprocedure::text from pg_proc where prosecdef"
        " and pronamespace in ('pgflow'::regnamespace, 'pgflowd'::regnamespace)"
        """ and not coalesce('search_path="", pg_temp' = any (proconfig), false)"""
    )

    assert conn.execute(query).fetchall() == []
