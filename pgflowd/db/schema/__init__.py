"""
Schema: brings a database to the schema this pgflowd needs, and tells how far it is.

`migrate` does all in one transaction under an advisory lock: a failure leaves nothing, and a
second migrate waits for the first. `status` and `verify` only look, `require` raises what a
daemon cannot work with, `sql` prints what `migrate` would run. Nothing here touches a schema
`pgflow` that somebody else installed; beside it only `pgflowd` is added.

    files    the SQL files and their order        plan    which of them, from where to where
    state    what the database says of itself     verify  what changed since the last migrate
    pgmq     the queues' SQL                      judge   states we cannot work with
"""

from pgflowd.db.schema.compatibility import Status, refuse_newer, require, status
from pgflowd.db.schema.migrate import Migrated, install, migrate, roles_sql, sql
from pgflowd.db.schema.verify import verify

__all__ = [
    "Migrated",
    "Status",
    "install",
    "migrate",
    "refuse_newer",
    "require",
    "roles_sql",
    "sql",
    "status",
    "verify",
]
