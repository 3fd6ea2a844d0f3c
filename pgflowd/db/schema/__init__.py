"""
Brings a database to the schema that this pgflowd needs, and reports its version.

`migrate` works in one transaction under a lock: a failure changes nothing, and a second
migrate waits for the first. `status` and `verify` only read. `require` raises if the daemon cannot
work with the schema. `sql` returns the SQL that `migrate` would execute. A schema `pgflow` that
pgflow's own migrations made is adopted.

    state    the SQL files and their order; the schema found in the database, the states that
             pgflowd refuses, and its changes
    migrate  the files for one migrate, executed or printed
"""

from pgflowd.db.schema.migrate import migrate, roles_sql, sql
from pgflowd.db.schema.state import (
    SchemaStatus,
    refuse_newer,
    replaced_functions,
    replaced_problem,
    require,
    status,
    verify,
)

__all__ = [
    "SchemaStatus",
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
