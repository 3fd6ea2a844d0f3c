"""
Brings a database to the schema that this pgflowd needs, and reports its version.

`migrate` works in one transaction under a lock: a failure changes nothing, and a second
migrate waits for the first. `status` and `verify` only read. `require` raises if the daemon cannot
work with the schema. `sql` returns the SQL that `migrate` would execute. A schema `pgflow` that
pgflow's own migrations made is adopted.

    files    the SQL files and their order
    state    the schema found in the database, whose it is, and the states that pgflowd refuses
    migrate  the files for one migrate, executed or printed
    verify   changes since the last migrate
"""

from pgflowd.db.schema.migrate import install, migrate, roles_sql, sql
from pgflowd.db.schema.state import (
    SchemaStatus,
    refuse_newer,
    replaced_functions,
    replaced_problem,
    require,
    status,
)
from pgflowd.db.schema.verify import verify

__all__ = [
    "SchemaStatus",
    "install",
    "migrate",
    "refuse_newer",
    "replaced_functions",
    "replaced_problem",
    "require",
    "roles_sql",
    "sql",
    "status",
    "verify",
]
