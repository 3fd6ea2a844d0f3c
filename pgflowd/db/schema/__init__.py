"""
Brings a database to the schema that this pgflowd needs, and reports its version.

`migrate` works in one transaction under a lock: a failure changes nothing, and a second
migrate waits for the first. `status` and `verify` only read. `require` raises if the daemon cannot
work with the schema. `sql` returns the SQL that `migrate` would execute. A schema `pgflow` that
another tool installed is never changed; only schema `pgflowd` is added.

    files    the SQL files and their order
    state    the schema found in the database, and the states that pgflowd refuses
    migrate  the files for one migrate, executed or printed
    verify   changes since the last migrate
"""

from pgflowd.db.schema.migrate import install, migrate, roles_sql, sql
from pgflowd.db.schema.state import SchemaStatus, refuse_newer, require, status
from pgflowd.db.schema.verify import verify

__all__ = [
    "SchemaStatus",
    "install",
    "migrate",
    "refuse_newer",
    "require",
    "roles_sql",
    "sql",
    "status",
    "verify",
]
