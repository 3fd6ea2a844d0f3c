"""
The embedded PostgreSQL: a server in a directory, for `demo`, `dev` and the tests.

    with EmbeddedPostgres(".pgflowd/demo") as pg:
        connect(pg.dsn)

    postgres         the context manager, the server of one directory, which processes share, its
                     account, and the programs of PostgreSQL
    directory_users  the processes that use it, and the guard that stops it when all were killed

Nothing here executes SQL.
"""

from pgflowd.embedded.postgres import EmbeddedPostgres, wheel_binaries

__all__ = ["EmbeddedPostgres", "wheel_binaries"]
