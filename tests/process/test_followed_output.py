"""
What handlers print and log, as a client that follows the run sees it: a real daemon and the
command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from support.background import Background
from support.covers import covers

from pgflowd import Client
from pgflowd.testing.until import until

FLOW = """
import os, sys, time
from pathlib import Path
from pgflowd import Flow
flow = Flow("talk", max_attempts=1, timeout=60)

def wait_for(path):
    until = time.monotonic() + 50
    while not Path(path).exists() and time.monotonic() < until:
        time.sleep(0.01)

@flow.step
def speak(run, ctx):
    print("one", "\\x1b[31mred\\x1b[0m", flush=True)
    print("said aloud", file=sys.stderr, flush=True)
    ctx.log.warning("mind the gap, password=hunter2")
    wait_for(run["gate"])
    for _ in range(run.get("lines", 0)):
        print("the same")
    print("last words", end="")
"""


class Following(Background):
    """A command that follows a run."""

    def texts(self, event: str = "task:output") -> list[str]:
        return [one["text"] for one in self.events if one["event"] == event]


@pytest.fixture
def following(setup, tmp_path):
    begun: list[Following] = []

    def follow(*args: str) -> Following:
        url = ("--database-url", setup.dsn)
        begun.append(Following(*args, *url, cwd=tmp_path, env={"PGFLOWD_CONFIG": ""}))
        return begun[-1]

    yield follow
    for each in begun:
        each.process.kill()
        each.process.wait()


def serve(setup, **worker: Any) -> None:
    setup.module("talk", FLOW)
    setup.serve(worker=worker)


def start(setup, tmp_path: Path, follow: Callable[..., Following], **more: Any) -> Following:
    """Start a run and follow it; it goes on when `gate` is there."""
    given = json.dumps({"gate": str(tmp_path / "gate"), **more})
    return follow("runs", "start", "talk", given, "--follow", "--json")


def test_what_a_handler_prints_is_seen_while_it_runs_and_to_its_last_word(
    setup, tmp_path, following
):
    serve(setup)
    follower = start(setup, tmp_path, following, lines=3)
    until(lambda: len(follower.texts()) == 3, within_s=20)
    (tmp_path / "gate").touch()

    assert follower.ended() == 0
    received = [one for one in follower.events if one["event"] == "task:output"]
    assert {(one["stream"], one["level"], one["text"]) for one in received[:3]} == {
        ("stdout", "info", "one \x1b[31mred\x1b[0m"),
        ("stderr", "info", "said aloud"),
        ("log", "warning", "mind the gap, password=***"),
    }
    assert [one["text"] for one in received[3:]] == ["the same"] * 3 + ["last words"]
    assert {(one["step"], one["task"], one["attempt"]) for one in received} == {("speak", 0, 1)}
    assert "hunter2" not in str(received)
    assert follower.events[-1]["event"] == "run:completed"


@covers("database 12")
def test_two_clients_follow_a_run_and_a_role_without_rights_reads_nothing(
    setup, tmp_path, following
):
    serve(setup)
    first = start(setup, tmp_path, following)
    until(lambda: len(first.texts()) == 3, within_s=20)
    run_id = first.events[0]["run_id"]
    with psycopg.connect(setup.dsn, autocommit=True) as reader:
        reader.execute(f'listen "pgflow:run:{run_id}"')
        reader.execute("set role pg_monitor")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("select pgflowd.output_channel(%s)", (run_id,))
        second = following("runs", "follow", "@last", "--json")
        until(lambda: second.events, within_s=20)
        (tmp_path / "gate").touch()

        assert first.ended() == second.ended() == 0
        assert first.texts()[-1] == second.texts()[-1] == "last words"
        payloads = [notice.payload for notice in reader.notifies(timeout=5, stop_after=3)]
    events = [json.loads(payload) for payload in payloads]
    assert all(set(one) <= {"event_type", "run_id", "step_slug", "status"} for one in events)
    assert len([one for one in events if one["event_type"] == "run:completed"]) == 1


def test_a_flood_is_bounded_and_what_was_left_out_is_counted(setup, tmp_path, following):
    serve(setup)
    follower = start(setup, tmp_path, following, lines=5000)
    until(lambda: len(follower.texts()) == 3, within_s=20)
    (tmp_path / "gate").touch()

    assert follower.ended() == 0
    received = follower.texts()
    dropped = sum(int(text.split()[0]) for text in received if text.endswith("to be shown"))
    assert len(received) > 100 and (dropped or received[-1] == "last words")


def test_nothing_is_sent_that_is_not_captured(setup, tmp_path, following):
    serve(setup, handler_output="discard")
    follower = start(setup, tmp_path, following)
    until(lambda: len(follower.texts()) == 1, within_s=20)
    (tmp_path / "gate").touch()

    assert follower.ended() == 0
    assert [one["stream"] for one in follower.events if one["event"] == "task:output"] == ["log"]


def test_a_worker_that_no_notification_reached_reads_at_its_heartbeat_who_follows(setup, tmp_path):
    serve(setup, heartbeat_interval="500ms")
    run_id = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c13"
    with psycopg.connect(setup.dsn, autocommit=True) as listener, Client(setup.dsn) as client:
        (channel,) = listener.execute("select pgflowd.output_channel(%s)", (run_id,)).fetchone()
        listener.execute(f'listen "{channel}"')
        listener.execute(
            "insert into pgflowd.followers values (%s, true, now() + interval '1 min')", (run_id,)
        )
        client.start_flow("talk", {"gate": str(tmp_path / "gate")}, run_id=run_id)
        lease = "select lease_until from pgflowd.attempts"
        claimed = until(lambda: listener.execute(lease).fetchone(), within_s=20)
        until(lambda: listener.execute(lease).fetchone() != claimed, within_s=20)
        (tmp_path / "gate").touch()
        payloads = [notice.payload for notice in listener.notifies(timeout=20, stop_after=1)]
    assert json.loads(payloads[0])["event_type"] == "task:output"


def test_while_nobody_follows_nothing_is_sent(setup, tmp_path):
    serve(setup)
    with psycopg.connect(setup.dsn, autocommit=True) as listener:
        (tmp_path / "gate").touch()
        run_id = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
        listener.execute(f'listen "pgflow:run:{run_id}"')
        with Client(setup.dsn) as client:
            given = {"gate": str(tmp_path / "gate")}
            client.start_flow_sync("talk", given, run_id=run_id, timeout=30)
        events = [json.loads(notice.payload) for notice in listener.notifies(timeout=1)]
    assert events and "task:output" not in {one["event_type"] for one in events}


def test_on_a_screen_a_line_stands_below_its_step_without_control_characters(
    setup, tmp_path, following
):
    serve(setup)
    (tmp_path / "gate").touch()
    given = json.dumps({"gate": str(tmp_path / "gate")})
    follower = following("runs", "start", "talk", given, "--follow")

    assert follower.ended() == 0
    shown = [line for line in follower.lines if "speak" in line]
    assert any(line.endswith(("│ one red", "| one red")) for line in shown)
    assert any("warning: mind the gap" in line for line in shown)
    assert "\x1b" not in "\n".join(follower.lines)
    assert "completed" in follower.lines[-1]
