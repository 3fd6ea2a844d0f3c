"""`pgflowd db sql` within Alembic, Django and Flyway, as docs/guides/applications.md shows it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from support.pages import blocks_of

from pgflowd.cli.main import run
from pgflowd.db import schema
from pgflowd.resources import schema_version

PAGE = "docs/guides/applications.md"
OLDER = schema_version() - 1


def block_with(text: str) -> str:
    (found,) = [block for block in blocks_of(PAGE, "python") if text in block]
    return found


def is_whole(dsn: str) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        return schema.status(conn).problem is None and schema.verify(conn) == []


@pytest.fixture
def tool(tmp_path: Path):
    """Executes a program in a directory of its own."""

    def execute(*words: str, **environ: str) -> None:
        done = subprocess.run(
            words, cwd=tmp_path, env={**os.environ, **environ}, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr

    return execute


@pytest.mark.parametrize(("driver", "from_"), [("psycopg", None), ("psycopg2", OLDER)])
def test_alembic_installs_and_upgrades_in_its_own_transaction(
    empty_database, tmp_path, tool, driver, from_
) -> None:
    if from_:
        schema.migrate(empty_database.connect(), to=from_)
    url = empty_database.dsn.replace("postgresql://", f"postgresql+{driver}://")
    tool(sys.executable, "-m", "alembic", "init", "migrations")
    ini = tmp_path / "alembic.ini"
    theirs = "sqlalchemy.url = driver://user:pass@localhost/dbname"
    assert theirs in ini.read_text()
    ours = f"sqlalchemy.url = {url.replace('%', '%%')}"
    ini.write_text(ini.read_text().replace(theirs, ours))
    (tmp_path / "migrations/versions/1.py").write_text(block_with("def upgrade"))
    (tmp_path / "migrations/pgflowd.sql").write_text(schema.sql(from_))
    tool(sys.executable, "-m", "alembic", "upgrade", "head")
    assert is_whole(empty_database.dsn)
    row = empty_database.connect().execute("select version_num from alembic_version").fetchone()
    assert row == ("0001",)


def test_django_installs_and_upgrades_in_its_own_transaction(
    empty_database, tmp_path, tool
) -> None:
    known = psycopg.conninfo.conninfo_to_dict(empty_database.dsn)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    values = {key: known.get(name, "") for key, name in names.items()}
    values["ENGINE"] = "django.db.backends.postgresql"
    (tmp_path / "shop/migrations").mkdir(parents=True)
    (tmp_path / "shop/__init__.py").touch()
    (tmp_path / "shop/migrations/__init__.py").touch()
    (tmp_path / "shop/migrations/0001_pgflowd.py").write_text(block_with("RunSQL"))
    (tmp_path / "shop/migrations/pgflowd.sql").write_text(schema.sql())
    settings = f"DATABASES = {{'default': {values!r}}}\nINSTALLED_APPS = ['shop']\nUSE_TZ = True\n"
    (tmp_path / "settings.py").write_text(settings)
    tool(
        sys.executable, "-m", "django", "migrate", DJANGO_SETTINGS_MODULE="settings", PYTHONPATH="."
    )
    assert is_whole(empty_database.dsn)


def test_flyway_finds_no_placeholder_and_goes_on_in_the_transaction(empty_database, capsys) -> None:
    """What it does: a file is sent in a transaction, in which it writes its history then."""
    schema.migrate(empty_database.connect(), to=OLDER)
    assert run(["db", "sql", "--from", str(OLDER)]) == 0
    upgrade = capsys.readouterr().out
    assert "${" not in upgrade + schema.sql()
    with psycopg.connect(empty_database.dsn) as conn:
        conn.execute(upgrade.encode())
        conn.execute("create table flyway_schema_history (version text)")
    assert is_whole(empty_database.dsn)


def test_the_script_leaves_the_settings_of_its_transaction(
    empty_database,
) -> None:
    names = ("search_path", "statement_timeout", "lock_timeout", "check_function_bodies")
    with psycopg.connect(empty_database.dsn) as conn:
        conn.execute("set local statement_timeout = '7s'; create table mine (id int)")
        before = [conn.execute(f"show {name}").fetchone() for name in names]
        conn.execute(schema.sql().encode())
        assert [conn.execute(f"show {name}").fetchone() for name in names] == before
        conn.execute("insert into mine values (1)")
        assert conn.execute("show transaction_isolation").fetchone() == ("read committed",)
