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

from pgflowd.db.schema.migrate import migrate as migrate
from pgflowd.db.schema.migrate import roles_sql as roles_sql
from pgflowd.db.schema.migrate import sql as sql
from pgflowd.db.schema.state import SchemaStatus as SchemaStatus
from pgflowd.db.schema.state import refuse_newer as refuse_newer
from pgflowd.db.schema.state import replaced_functions as replaced_functions
from pgflowd.db.schema.state import replaced_problem as replaced_problem
from pgflowd.db.schema.state import require as require
from pgflowd.db.schema.state import status as status
from pgflowd.db.schema.state import verify as verify
