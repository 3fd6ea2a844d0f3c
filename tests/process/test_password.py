"""Passwords: one that was changed is waited for, and none is ever told."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from daemon_house import House
from invariants import broken
from own_server import OwnServer
from test_stop_and_reload import start_marked, terminate_all
from test_supervisor import is_completed, is_completed_soon, start_run

from pgflowd.host.proc import command_line
from pgflowd.testing.scratch import ScratchDatabase
from pgflowd.testing.until import until


@pytest.fixture
def house(tmp_path):
    """A house whose database is told later."""
    house = House(tmp_path, "")
    yield house
    house.close()


def test_a_changed_password_and_a_role_that_is_gone_are_waited_for(house, tmp_path):
    """Row 80."""
    secret = tmp_path / "url"
    secret.touch(mode=0o600)
    with OwnServer() as server:
        database = ScratchDatabase(server.dsn)
        conn = database.connect()
        for who, password in (("humble", "first"), ("new", "third")):
            conn.execute(f"create role {who} superuser login password '{password}'")
        where = server.tcp_dsn.partition("@")[2]
        secret.write_text(f"postgresql://humble:first@{where}")
        house.dsn = f"file:{secret}"
        house.flow("alpha", attempts=1)
        daemon = house.serve()
        before = daemon.pids()

        for change, said, url in (
            ("password 'second'", "password authentication failed", f"humble:second@{where}"),
            ("rename to gone", "humble", f"new:third@{where}"),
        ):
            run_id = start_marked(house, database, s=0.2)
            conn.execute(f"alter role humble {change}")
            terminate_all(database)
            daemon.until("listener.lost", level="error")
            daemon.until("sweeper.lost", level="error")
            daemon.until("worker.error", level="error")
            until(lambda said=said: any(said in text for text in problems(daemon)), 5)
            assert not is_completed(database, run_id)

            secret.write_text(f"postgresql://{url}")
            until(lambda run_id=run_id: is_completed(database, run_id), 5 * 2)
            until(lambda: daemon.ask()["database"]["state"] == "up", 10)

        assert is_completed_soon(database, start_run(database, "alpha"))
        assert daemon.pids() == before
        assert daemon.ask()["supervisor"]["restarts"] == 0
        assert broken(conn, house.oracle) == []
        house.close()
        database.close()


def problems(daemon):
    return [each["text"] for each in daemon.ask()["problems"]]


CANARY = "canary7%23%27"  # canary7#' once it is decoded, so it stands in logs in either spelling
LEAKY = """
import os, sys
from pgflowd import Flow
flow = Flow("alpha", max_attempts=1)

@flow.step
def work(run, ctx):
    if run.get("connect"):
        return ctx.conn().info.dsn
    for place in ("/proc/self/environ", "/proc/self/cmdline", f"/proc/{os.getppid()}/cmdline"):
        with open(place) as file:
            print(file.read())
    print(os.environ, sys.argv, vars(ctx), file=sys.stderr)
    raise ValueError(f"{dict(os.environ)} {ctx!r}")
"""
WHILE_REFUSED = ("status", "status --json", "doctor", "check", "runs list", "db status")
THEN = ("tree", "doctor --json", "check --json", "config show", "config show --json", "db status")
ALL = """
import sys
from contextlib import suppress
from pgflowd.cli.main import main
_, config, *commands = sys.argv
for command in commands:
    sys.argv = ["pgflowd", *command.split(), "-c", config]
    with suppress(SystemExit):
        main()
"""
TABLES = """
    select oid::regclass::text from pg_class
     where relkind = 'r' and relnamespace::regnamespace::text in ('pgflow', 'pgflowd', 'pgmq')
"""


def test_a_password_is_in_no_title_log_table_or_output(house):
    """Row 103."""
    with OwnServer() as server:
        database = ScratchDatabase(server.dsn)
        conn = database.connect()
        conn.execute("create role humble superuser login password 'canary7#'''")
        house.dsn = f"postgresql://humble:{CANARY}@{server.tcp_dsn.partition('@')[2]}"
        house.module("leaky", LEAKY)
        house.environ["PGFLOWD__DATABASE__LISTEN_URL"] = house.dsn
        daemon = house.serve()
        told = [str(daemon.titles()), str(environments(daemon, "runner", "zygote"))]

        client = database.client
        for run in ({"connect": True}, {}):
            run_id = client.start_flow("alpha", run).run_id
            until(lambda run_id=run_id: client.get_run(run_id).status != "started", 10)
        conn.execute("alter role humble password 'other'")
        terminate_all(database)
        for event in ("listener.lost", "sweeper.lost", "worker.error"):
            daemon.until(event, level="error")
        daemon.send(signal.SIGUSR1)
        daemon.until("supervisor.stack")
        told += outputs(daemon, *WHILE_REFUSED)
        conn.execute("alter role humble password 'canary7#'''")
        until(lambda: daemon.ask()["database"]["state"] == "up", 10)
        told += outputs(daemon, *THEN)
        for (table,) in conn.execute(TABLES).fetchall():
            told += [str(row) for row in conn.execute(f"select * from {table}")]
        told += [str(row) for row in conn.execute("select * from pg_stat_activity")]
        daemon.send(signal.SIGQUIT)
        daemon.ended()
        told.append(daemon.log.read_text())
        house.close()
        database.close()

    for said in ("password authentication failed", "ValueError", "[database]", "supervisor.stack"):
        assert any(said in text for text in told)
    assert [text for text in told if "canary7" in text] == []


def outputs(daemon, *commands):
    """What our commands print, each in turn, in one process."""
    command = [sys.executable, "-c", ALL, str(daemon.config), *commands]
    house = daemon.house
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=house.directory, env=house.environ, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [done.stdout, done.stderr]


def environments(daemon, *kinds):
    """What `ps` shows of the processes in which user code runs."""
    found = []
    for seen in daemon.family():
        if any(kind in command_line(seen.pid) for kind in kinds):
            found.append(Path(f"/proc/{seen.pid}/environ").read_text(errors="replace"))
    return found
