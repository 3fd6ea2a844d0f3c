"""
Plans the SQL files that bring a database from its version to another one.

`migrate` executes and `sql` prints the same list of files. An empty database gets the tables of
today at once; an older one, or an empty one with an older target, gets the migrations. All other
objects are applied every time, unless the target is older than the newest version, because the
functions of today need the newest tables.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from psycopg import sql

from pgflowd import __version__
from pgflowd.db.schema.files import (
    OWN,
    Migration,
    SqlFile,
    checksum,
    migrations,
    newest_version,
    read,
    schema_files,
)
from pgflowd.db.schema.pgmq import pgmq_script


@dataclass(frozen=True)
class MigrationPlan:
    """The versions before and after, and the core; `files` are executed in this order."""

    core: str
    start: int | None
    target: int
    by_migrations: bool
    old_checksum: str | None = None

    @property
    def migrations(self) -> list[Migration]:
        """The migrations to record."""
        start = self.start or 0
        return [step for step in migrations() if start < step.version <= self.target]

    @property
    def is_whole(self) -> bool:
        """Whether its target is the newest version, so that it includes the functions."""
        return self.target == newest_version()

    @property
    def files(self) -> list[SqlFile]:
        fingerprint = read("install/fingerprint.sql").text
        core = literal(self.core)
        finish = [read("install/finish.sql"), read("install/grants.sql")] if self.is_whole else []
        if self.is_whole and self.start is None and self.core == OWN:
            finish.append(read("install/cron.sql"))
        sweep = [read("install/sweep.sql", core=core)] if self.is_whole else []
        return [
            pgmq_script(),
            read("install/before.sql", fingerprint=fingerprint),
            *self._objects(),
            *sweep,
            self._record(fingerprint),
            *finish,
        ]

    def _objects(self) -> list[SqlFile]:
        files = schema_files(self.core)
        if not self.by_migrations:
            return files
        first = next((at for at, file in enumerate(files) if file.is_table), len(files))
        early, late = files[:first], [file for file in files[first:] if not file.is_table]
        steps = [step.file for step in self.migrations if step.suits(self.core)]
        return [*early, *steps, *(late if self.is_whole else [])]

    def _record(self, fingerprint: str) -> SqlFile:
        steps = [
            {"version": step.version, "name": step.name, "checksum": step.checksum}
            for step in self.migrations
        ]
        whole = checksum(schema_files(self.core)) if self.is_whole else self.old_checksum
        return read(
            "install/record.sql",
            fingerprint=fingerprint,
            steps=literal(json.dumps(steps)),
            version=str(self.target),
            checksum=literal(whole or "none"),
            core=literal(self.core),
            release=literal(__version__),
        )


def literal(text: str) -> str:
    """Return the text as an SQL literal."""
    return sql.Literal(text).as_string(None)
