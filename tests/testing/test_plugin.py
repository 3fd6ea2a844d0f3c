"""
The pytest plugin, in a user's project: it loads by itself.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from pgflowd.testing import plugin
from pgflowd.testing.scratch import ScratchServer

A_TEST = """
def test_for_real(pgflow_db):
    with pgflow_db.connect() as connection:
        row = connection.execute("select inet_server_port(), count(*) from pgflow.runs").fetchone()
    assert row[1] == 0
"""

WITH_A_DAEMON = """
def test_for_real(pgflow_db, pgflow_daemon):
    run = pgflow_db.client.start_flow_sync("double", 4, timeout=20)

    assert run.output == {"perform": 8}, pgflow_daemon.log

def test_another_time(pgflow_db, pgflow_daemon):
    pgflow_db.client.start_flow("forever", None)
    assert pgflow_daemon.pid
"""
JOBS = """
import time
from pgflowd import job

@job("double")
def double(run): return 2 * run

@job("forever")
def forever(run): time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_flow.py").write_text(A_TEST)
    return tmp_path


def test_a_project_gets_a_database_without_any_setup(project: Path):
    assert "1 passed" in run_pytest(project)
    assert not plugin.directory_for(project, None).exists()


def test_the_workers_of_xdist_share_the_server(project: Path):
    for number in range(5):
        (project / f"test_{number}.py").write_text(A_TEST)

    assert "6 passed" in run_pytest(project, "-n", "3")


def test_a_server_of_the_users_own_is_used_when_named(project: Path, server: ScratchServer):
    (project / "test_flow.py").write_text(
        A_TEST + f"    assert pgflow_db.connect().info.port == {port_of(server)}\n"
    )

    assert "1 passed" in run_pytest(project, f"--pgflow-dsn={server.dsn}")


def test_a_daemon_serves_the_flows_of_the_project_in_the_database_of_the_test(project: Path):
    (project / "test_flow.py").write_text(WITH_A_DAEMON)
    (project / "jobs.py").write_text(JOBS)
    (project / "pgflowd.toml").write_text('[pgflowd]\nflows = ["jobs"]\ndefinitions = "verify"\n')

    assert "2 passed" in run_pytest(project)


def test_a_daemon_that_cannot_start_reports_the_cause(project: Path):
    (project / "test_flow.py").write_text(WITH_A_DAEMON)
    (project / "pgflowd.toml").write_text('[pgflowd]\nflows = ["jobz"]\n')

    said = run_pytest(project, "-x", status=1)

    assert "the daemon did not start" in said
    assert "No module named 'jobz'" in said


def test_a_project_that_asks_for_no_database_starts_none(project: Path):
    (project / "test_flow.py").write_text(
        "import sys\ndef test_quick():\n    assert 'psycopg' not in sys.modules\n"
    )

    assert "1 passed" in run_pytest(project)


def test_where_memory_is_short_the_data_are_below_the_project(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(plugin, "ROOM_NEEDED", 1 << 60)

    assert plugin.directory_for(project, None).parent == project / ".pgflowd"


def test_data_from_before_a_reboot_are_not_used_again(
    project: Path, monkeypatch: pytest.MonkeyPatch
):
    before = plugin.directory_for(project, None)
    (project / "boot_id").write_text("another boot\n")
    monkeypatch.setattr(plugin, "BOOT", project / "boot_id")

    assert plugin.directory_for(project, None) != before


def run_pytest(project: Path, *flags: str, status: int = 0) -> str:
    """Run pytest in the project, as its owner would, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *flags],
        cwd=project,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert ended.returncode == status, ended.stdout
    return ended.stdout


def port_of(server: ScratchServer) -> int:
    with psycopg.connect(server.dsn) as connection:
        return connection.info.port
