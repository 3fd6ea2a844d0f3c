"""
The embedded PostgreSQL: a server in a directory, for `demo`, `dev` and the tests.

    with EmbeddedPostgres(".pgflowd/demo") as pg:
        connect(pg.dsn)

    postgres         the context manager, and the server of one directory, which processes share
    directory_users  the processes that use it, and the guard that stops it when all were killed
    account          the account the server runs as, and the programs of PostgreSQL

Nothing here executes SQL.
"""

from pgflowd.embedded.account import wheel_binaries
from pgflowd.embedded.postgres import EmbeddedPostgres

__all__ = ["EmbeddedPostgres", "wheel_binaries"]
