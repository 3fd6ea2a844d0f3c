"""
The demo, as a user starts it: its output, and what it leaves.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from support import documents
from support.covers import covers

from pgflowd import __version__
from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.until import until

COMMAND = [str(Path(sys.executable).with_name("pgflowd")), "demo"]


@pytest.fixture
def here() -> Iterator[Path]:
    """A directory to run in, which the server's user may enter when root runs the demo."""
    with tempfile.TemporaryDirectory(prefix="pgflowd-demo-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_four_flows_run_through_a_failure_a_timeout_and_an_undo_and_nothing_is_left(here: Path):
    output = demo(here, "--once")

    assert re.match(
        rf"pgflowd {re.escape(__version__)} demo   PostgreSQL 18\.\d+ "
        r"\(embedded, \.pgflowd/demo\)   schema installed in [\d.]+m?s   4 example flows\n",
        output,
    )
    for flow in ("analyze_website", "resize_images", "flaky_payment"):
        assert re.search(rf"{flow} +completed in [\d.]+m?s", output)
    assert re.search(r"undone_payment +undone in [\d.]+m?s +a lost parcel", output)
    assert "4 runs, 111 tasks, 2 retries." in output
    assert "pgflowd new shop" in output
    assert "pgflowd demo" in output.splitlines()[-1]
    assert list(here.iterdir()) == []


def test_json_has_the_results_of_the_runs(here: Path):
    shown = json.loads(out := demo(here, "--once", "--json"))

    documents.check(["demo", "--json"], out, "")
    assert [run["status"] for run in shown["runs"]] == ["completed"] * 3 + ["undone"]
    assert shown["runs"][1]["output"] == {"contact_sheet": {"images": 100, "pixels": 40000}}
    assert (shown["tasks"], shown["retries"], shown["schema_version"]) == (111, 2, 1)


def test_its_data_may_be_kept(here: Path):
    demo(here, "--once", "--keep")

    with (
        EmbeddedPostgres(here / ".pgflowd" / "demo", keep=False) as postgres,
        psycopg.connect(postgres.dsn) as connection,
    ):
        assert connection.execute("select count(*) from pgflow.runs").fetchone() == (5,)


def test_it_runs_until_a_signal(here: Path):
    with running(here, "--json") as (process, shown):
        with psycopg.connect(shown["dsn"]) as connection:
            assert connection.execute("select count(*) from pgflow.runs").fetchone() == (5,)

        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=30) == 0
    assert list(here.iterdir()) == []


def test_its_last_hint_leads_to_a_browser_in_which_a_run_moves(here: Path):
    process = subprocess.Popen([*COMMAND], cwd=here, stdout=subprocess.PIPE, text=True)
    try:
        for line in process.stdout:
            if link := re.search(r"^ +(http://127\.0\.0\.1:\S+) +see runs move", line):
                break
        with httpx.Client(timeout=30) as browser:
            browser.get(link[1])
            page = link[1].partition("?")[0]

            def runs() -> list[Any]:
                return browser.get(f"{page}api/1/runs").json()["runs"]

            before = {run["run_id"] for run in runs()}
            until(lambda: {run["run_id"] for run in runs()} - before, within_s=30)
            assert runs()[0]["flow"] in browser.get(f"{page}runs").text
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate(timeout=30)
    assert list(here.iterdir()) == []


def test_settings_for_other_databases_and_daemons_are_not_for_the_demo(
    here: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PGFLOWD__WORKER__BATCH_SIZE", "many")
    monkeypatch.setenv("PGHOSTADDR", "127.0.0.1")
    monkeypatch.setenv("PGSERVICE", "elsewhere")

    assert "4 runs, 111 tasks" in demo(here, "--once")


@covers("newcomer 9")
def test_another_database_is_refused(here: Path):
    refused = subprocess.run(
        [*COMMAND, "--database-url", "postgresql:///x"], cwd=here, capture_output=True, text=True
    )

    assert refused.returncode == 2
    assert "the demo has a PostgreSQL of its own" in refused.stderr
    assert list(here.iterdir()) == []


def test_a_daemon_that_does_not_come_up_has_its_last_words_shown(here: Path):
    (here / ".pgflowd" / "demo").mkdir(parents=True)
    (here / ".pgflowd" / "demo" / "run").write_text("in the way of the control socket")

    ended = subprocess.run(
        [*COMMAND, "--once"], cwd=here, capture_output=True, text=True, timeout=60
    )

    assert ended.returncode == 1
    assert re.search(
        r"the daemon ended with exit code 78: .*control socket cannot be made", ended.stderr
    )


def test_a_second_one_in_the_same_directory_is_refused_and_the_first_one_continues(here: Path):
    with running(here, "--json") as (process, _):
        second = subprocess.run(
            [*COMMAND, "--once"], cwd=here, capture_output=True, text=True, timeout=60
        )

        assert second.returncode == 75
        assert "another daemon uses" in second.stderr
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 0
    assert list(here.iterdir()) == []


def test_a_directory_that_cannot_be_written_is_replaced_by_a_temporary_one():
    output = demo(Path("/proc"), "--once")

    place = re.search(r"\(embedded, (.*?)\)", output)
    assert place is not None
    assert place[1].startswith(tempfile.gettempdir())
    assert not Path(place[1]).parent.exists()


def demo(directory: Path, *flags: str) -> str:
    """Run the demo to its end and return what it printed."""
    ended = subprocess.run(
        [*COMMAND, *flags], cwd=directory, stdout=subprocess.PIPE, text=True, timeout=60
    )
    assert ended.returncode == 0
    return ended.stdout


@contextmanager
def running(directory: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Start the demo and return its JSON; it is killed if it does not end."""
    process = subprocess.Popen(
        [*COMMAND, *flags],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's & ignores it
    )
    assert process.stdout is not None
    try:
        document = ""
        for line in process.stdout:
            document += line
            if line == "}\n":
                break
        yield process, json.loads(document)
    finally:
        process.kill()
        process.communicate(timeout=30)
