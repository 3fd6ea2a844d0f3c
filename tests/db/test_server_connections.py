"""How many connections the server, a role and a database allow, as the daemon counts them."""

from __future__ import annotations

import os
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgflowd.db.daemons import server_connections
from pgflowd.db.query import execute


@pytest.fixture
def role(empty_database):
    conn, name = empty_database.connect(), f"few_{os.getpid()}_{uuid4().hex[:6]}"
    conn.execute(f"create role {name} login connection limit 3".encode())
    yield name
    conn.execute(f"drop role {name}".encode())


def allowed(conn: psycopg.Connection) -> int:
    return execute(conn, server_connections()).allowed


def test_the_limits_of_role_and_database_bind_an_ordinary_user(empty_database, role):
    conn, dsn = empty_database.connect(), make_conninfo(empty_database.dsn, user=role)
    with psycopg.connect(dsn, autocommit=True) as limited:
        assert allowed(limited) == 3

        conn.execute(f"alter database {empty_database.name} connection limit 2")

        assert allowed(limited) == 2


def test_they_do_not_bind_a_superuser(empty_database, role):
    conn, dsn = empty_database.connect(), make_conninfo(empty_database.dsn, user=role)
    conn.execute(f"alter database {empty_database.name} connection limit 2")

    conn.execute(f"alter role {role} superuser")

    with psycopg.connect(dsn, autocommit=True) as limited:
        assert allowed(limited) > 3
