"""
Embedded PostgreSQL: a server of one's own in a directory, for `demo`, `dev` and the tests.

    with EmbeddedPostgres(".pgflowd/demo") as pg:
        connect(pg.dsn)

    embedded   joins and leaves: who uses the directory shares one server
    cluster    makes, starts and stops the server of one directory
    leases     tells who uses it, and guards it when its users are killed
    account    as whom it runs, since PostgreSQL refuses to run as root
    binaries   where the programs are

Nothing here speaks SQL: `host` knows the machine, `db` knows the database.
"""

from pgflowd.embedded.binaries import wheel_binaries
from pgflowd.embedded.embedded import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "wheel_binaries"]
