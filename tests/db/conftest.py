"""
Fixtures for tests of the schema: databases on every version, with roles, beside upstream's core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from support.postgres_versions import binaries_of
from support.schema import As, Connection
from support.upstream import install_upstream

from pgflowd.db import schema
from pgflowd.db.schema.migrate import shipped_pgmq
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.plugin import embedded_server, given_server
from pgflowd.testing.scratch import ScratchDatabase, ScratchServer

PGMQ_OFFERED = ("1.4.0", "1.5.1", "1.10.0", "1.9.0", "latest")


@pytest.fixture
def empty(empty_database: ScratchDatabase) -> Connection:
    """A connection to a database with nothing in it."""
    return empty_database.connect()


@pytest.fixture
def conn(database: ScratchDatabase) -> Connection:
    """A connection to a database with the whole schema."""
    return database.connect()


@pytest.fixture(scope="session")
def server_of(request: pytest.FixtureRequest) -> Iterator[Callable[[int], ScratchServer]]:
    """Servers of other versions, each started when first asked for."""
    servers: dict[int, ScratchServer] = {}
    with ExitStack() as stack:

        def server(major: int) -> ScratchServer:
            if major not in servers:
                place = request.config.rootpath / ".pgflowd" / f"test{major}"
                server = embedded_server(place, binaries_of(major))
                servers[major] = stack.enter_context(server)
            return servers[major]

        yield server


@pytest.fixture(scope="session")
def offering() -> Iterator[ScratchServer]:
    """A server that offers extensions: several versions of pgmq, and a stand-in of pg_cron.

    PostgreSQL 18 has a setting for their directory.
    """
    with TemporaryDirectory() as name:
        place = Path(name)
        place.chmod(0o755)  # the server may run as another user
        offered = place / "extension"
        offered.mkdir(mode=0o755)
        pgmq, cron = shipped_pgmq()[1], Path(__file__).with_name("pg_cron.sql").read_text()
        for version in PGMQ_OFFERED:
            (offered / f"pgmq--{version}.sql").write_text(pgmq)
        (offered / "pgmq.control").write_text("default_version = '1.4.0'\nschema = 'pgmq'\n")
        (offered / "pg_cron--1.6.sql").write_text(cron)
        (offered / "pg_cron.control").write_text("default_version = '1.6'\n")
        options = {"extension_control_path": f"{place}:$system", "fsync": "off"}
        with (
            EmbeddedPostgres(place / "data", options=options, binaries=binaries_of(18)) as postgres,
            given_server(postgres.dsn) as server,
        ):
            yield server


@pytest.fixture
def as_role(database: ScratchDatabase) -> As:
    """Connections as one of the roles of roles.sql, to a database that has them."""
    with database.connect() as conn, conn.transaction():
        conn.execute(schema.roles_sql().encode())
    return lambda role: psycopg.connect(
        make_conninfo(database.dsn, options=f"-c role={role}"), autocommit=True
    )


@pytest.fixture
def upstream(empty: Connection) -> Connection:
    """A database with the core that npm's @pgflow/core 0.8.1 carries, and no schema pgflowd."""
    install_upstream(empty)
    return empty
