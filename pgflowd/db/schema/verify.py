"""
Lists the objects that changed in the database since the last migrate.

It compares the catalog with the fingerprints that migrate recorded, and ignores objects of other
tools. It compares the recorded migrations with the files.
"""

from __future__ import annotations

from pgflowd.db.connection import translated
from pgflowd.db.schema.files import migrations, read
from pgflowd.db.schema.state import ADOPT, MIGRATE, Connection, pairs, require
from pgflowd.errors import Problem

REPLACED_BY_MIGRATE = ("function", "view", "trigger")  # the other kinds hold data
BY_HAND = "change it back by hand, or restore it; sql/schema has its definition"


def verify(conn: Connection) -> list[Problem]:
    """Return one problem for each object that differs or is missing."""
    with translated(conn), conn.transaction():
        conn.execute(read("install/printing.sql").text.encode())
        require(conn)
        known = pairs(conn, "install/known.sql")
        present = pairs(conn, "install/fingerprint.sql")
        applied = pairs(conn, "install/applied.sql")
    found = [
        _problem(name, "differs from" if name in present else "is missing since")
        for name, fingerprint in sorted(known.items())
        if present.get(name) != fingerprint
    ]
    return [*found, *_changed_migrations(applied)]


def _problem(name: str, verb: str) -> Problem:
    kind, _, rest = name.partition(" ")
    text = f"{name} {verb} the last migrate"
    if kind == "function" and rest.startswith("pgflow."):
        return Problem("E307", text, next=ADOPT)
    return Problem("E302", text, next=MIGRATE if kind in REPLACED_BY_MIGRATE else BY_HAND)


def _changed_migrations(applied: dict[str, str]) -> list[Problem]:
    return [
        Problem(
            "E302",
            f"migration {step.version:04}_{step.name} was applied with another text",
            next="find the release that applied it; a migration must never change",
        )
        for step in migrations()
        if applied.get(step.name, step.checksum) != step.checksum
    ]
