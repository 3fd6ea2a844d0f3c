"""
A password, from any place of the config, is in nothing that the daemon shows or logs.

The canary is in the URL, or where `env:`, `file:` or `cred:` lead to, or in libpq's variable. It is
looked for in logs, titles, environments of processes, in what commands print, and in the database.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from support.daemon import Daemon, DaemonSetup

from pgflowd.host.process_tree import command_line
from pgflowd.testing.until import until

CANARY = "canary-7f3a9c12"
SOURCE = """
import os
from pathlib import Path
from pgflowd import Flow
flow = Flow("looks", max_attempts=1)

@flow.step
def environment(run):
    own = Path("/proc/self/environ").read_bytes().decode(errors="replace")
    return [name for name, value in os.environ.items() if "canary" in value] + ["canary" in own]

@flow.step
def raises(run, ctx):
    ctx.log.info("a record")
    raise ConnectionError(f"cannot reach {run['url']}")
"""


@pytest.fixture(params=["url", "env", "file", "cred", "PGPASSWORD", "PGFLOWD__DATABASE__URL"])
def secretive(request, setup: DaemonSetup, tmp_path: Path) -> DaemonSetup:
    """A setup whose password is kept in this manner."""
    url = make_conninfo(setup.dsn, password=CANARY)
    match request.param:
        case "url":
            setup.dsn = url
        case "env":
            setup.environ["SHOP_URL"] = url
            setup.dsn = "env:SHOP_URL"
        case "file":
            (tmp_path / "secret").write_text(url)
            setup.dsn = f"file:{tmp_path / 'secret'}"
        case "cred":
            (tmp_path / "credentials").mkdir()
            (tmp_path / "credentials" / "shop").write_text(url)
            setup.environ["CREDENTIALS_DIRECTORY"] = str(tmp_path / "credentials")
            setup.dsn = "cred:shop"
        case "PGPASSWORD":
            setup.environ["PGPASSWORD"] = CANARY
        case _:
            setup.environ["PGFLOWD__DATABASE__URL"] = url
    setup.module("looks", SOURCE)
    return setup


@covers("row 103")
def test_a_password_is_nowhere_to_be_seen(secretive, database):
    daemon = secretive.serve()
    client = database.client
    run = client.start_flow("looks", {"url": make_conninfo(database.dsn, password=CANARY)})
    until(lambda: client.get_run(run.run_id).status == "failed", 10)
    daemon.send(signal.SIGUSR1)
    daemon.until("supervisor.stack")
    database.connect().execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name like 't: %' and datname = current_database()"
    )
    daemon.until("listener.lost")

    seen = everything_shown(daemon)
    seen["the database"] = str(
        database.connect()
        .execute("select error_message, traceback from pgflowd.attempts where outcome = 'failed'")
        .fetchall()
    )
    rows = "select status::text from pgflowd.daemons"
    seen["the row of the daemon"] = until(lambda: str(database.connect().execute(rows).fetchone()))

    assert "looks" in seen["the row of the daemon"]
    assert {where for where, text in seen.items() if CANARY in text} == set()
    assert environment_seen_by_a_handler(database, run.run_id) in (None, [False])


@covers("row 103")
def test_a_password_that_is_refused_or_leads_nowhere_is_not_shown(setup):
    setup.dsn = f"postgresql://u:{CANARY}@127.0.0.1:1/none?application_name={CANARY}"
    setup.flow("alpha")
    daemon = setup.start(database={"startup_wait": "0s"})
    assert daemon.ended() == 69

    outputs = [daemon.command(*command) for command in ALL_COMMANDS[:4]]

    shown = daemon.log.read_text() + "".join(each.stdout + each.stderr for each in outputs)
    assert "E301" in shown
    assert f":{CANARY}@" not in shown


ALL_COMMANDS = [
    ("config", "show", "--origin"),
    ("check",),
    ("status", "--json"),
    ("runs", "list"),
    ("config", "show", "--json"),
    ("doctor",),
    ("tree",),
]


def everything_shown(daemon: Daemon) -> dict[str, str]:
    """The visible texts of a daemon, by place."""
    seen = {"log": daemon.log.read_text()}
    family = [daemon.pid, *(each.pid for each in daemon.family())]
    for pid in family:
        title = command_line(pid)
        seen[f"title of {pid}"] = title
        if any(kind in title for kind in (": zygote", ": runner")):
            seen[f"environment of {title}"] = Path(f"/proc/{pid}/environ").read_text()
    is_in_url = CANARY in daemon.config.read_text()
    for command in ALL_COMMANDS if is_in_url else ALL_COMMANDS[:2]:
        done = daemon.command(*command)
        assert "E901" not in done.stderr, done.stderr
        seen[" ".join(command)] = done.stdout + done.stderr
    seen["control socket"] = json.dumps(daemon.ask())
    return seen


def environment_seen_by_a_handler(database, run_id) -> list[object] | None:
    query = """
        select output from pgflow.step_tasks
         where run_id = %s and step_slug = 'environment' and status = 'completed'
    """
    row = database.connect().execute(query, (run_id,)).fetchone()
    return None if row is None else row[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_other_users_cannot_read_the_environment_of_a_daemon(setup, database):
    setup.environ["PGPASSWORD"] = CANARY
    setup.flow("alpha")
    daemon = setup.serve()

    def can_read(pid: int) -> bool:
        child = os.fork()
        if child == 0:
            os.setgroups([])
            os.setuid(65534)
            try:
                Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                os._exit(1)
            os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

    family = [daemon.pid, *(each.pid for each in daemon.family())]
    assert [pid for pid in family if can_read(pid)] == []
