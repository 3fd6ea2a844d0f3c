"""Listener and sweeper as processes: wakes, lost connections, stalled tasks."""

from __future__ import annotations

import os
import signal
import time
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from support.covers import covers
from support.daemon import (
    attempts,
    connected,
    is_completed,
    is_completed_soon,
    marks,
    start_marked,
    start_run,
    terminate_all,
)

from pgflowd.processes.listener import MAX_WAKES
from pgflowd.testing.until import until


def last_start(path):
    return max((at for what, _, at in marks(path) if what == "start"), default=0)


@covers("row 91")
def test_a_notification_wakes_a_worker_at_once_whatever_its_slug(setup, database):
    long = "a" * 47
    for slug in ("Alpha", long):
        setup.flow(slug)
    setup.serve()
    path = setup.directory / "marks"

    for slug in ("Alpha", long):
        asked = time.time()
        start_run(database, slug, marks=str(path))
        until(lambda asked=asked: last_start(path) > asked, 3)  # the fallback comes after 30 s


@covers("row 88")
def test_a_lost_notification_is_made_good_by_the_fallback(setup, database):
    setup.flow("alpha")
    setup.serve(worker={"notify_fallback": "1s"})
    conn = database.connect()
    conn.execute("alter table pgmq.q_alpha disable trigger pgflowd_notify")

    run_id = start_run(database, "alpha")

    until(lambda: is_completed(database, run_id), 4)


@covers("D5", "row 89")
def test_after_a_reconnect_all_workers_are_woken(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    for _ in range(60):
        run_id = lose_line_and_start(database)
        until(lambda run_id=run_id: is_completed(database, run_id), 5)
        until(lambda: connected(database) >= 3)

    assert daemon.events("child.restarted") == []
    assert daemon.events("listener.regained")


def lose_line_and_start(database):
    """End the listener's session, and start a run while it is away."""
    terminate_all(database, "t: listener")
    return start_run(database, "alpha")


@covers("row 72")
def test_the_listener_notices_a_line_that_is_half_open(setup, database, proxy):
    setup.flow("alpha")
    daemon = setup.serve(database={"listen_url": proxy.url})

    proxy.do("hold")
    daemon.until("listener.lost", within_s=15 * 2)
    proxy.do("pass")

    daemon.until("listener.regained", within_s=12)
    assert is_completed_soon(database, start_run(database, "alpha"))
    assert daemon.events("child.restarted") == []


FLOOD = """
    do $$ begin
      for number in 1 .. 10000 loop
        perform pg_notify('pgflowd', case number % 2 when 0 then 'alpha' else 'beta' end);
        commit;
      end loop;
    end $$
"""


@covers("row 90")
def test_many_notifications_are_few_wakes(setup, database):
    for slug in ("alpha", "beta"):
        setup.flow(slug)
    daemon = setup.serve(worker={"notify_throttle": "250ms"})
    conn = database.connect()

    began = time.monotonic()
    conn.execute(FLOOD)
    run_id = start_run(database, "alpha")
    until(lambda: is_completed(database, run_id), 3)

    windows = (time.monotonic() - began) / 0.25 + 2
    assert len(daemon.events("worker.poll")) < 2 * (MAX_WAKES + 2) * windows
    assert daemon.events("child.restarted") == []


def test_unknown_and_malformed_notifications_do_no_harm(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    conn = database.connect()

    for payload in ("", "nobody", "x" * 7000, "\u2028'; drop table", "alpha\nbeta"):
        conn.execute("select pg_notify('pgflowd', %s)", (payload,))

    assert is_completed_soon(database, start_run(database, "alpha"))
    assert daemon.events("child.restarted") == []


def test_without_a_flow_that_listens_the_listener_needs_no_line(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(worker={"signal_strategy": "polling", "poll_max": "200ms"})

    query = "select application_name from pg_stat_activity where datname = current_database()"
    names = [row[0] for row in database.connect().execute(query)]
    assert "t: listener" not in names
    assert is_completed_soon(database, start_run(database, "alpha"))
    assert daemon.ask()["listener"]["state"] == "up"


@covers("row 99")
def test_the_sweeper_recovers_the_tasks_of_other_daemons_flows(setup, database):
    setup.flow("alpha")
    first = setup.serve("one")
    run_id = start_marked(setup, database, s=0.5)
    worker = first.pid_of("alpha")
    os.kill(first.pid, signal.SIGKILL)
    os.kill(worker, signal.SIGKILL)
    setup.entries.clear()
    setup.flow("other")

    second = setup.serve("two")

    second.until("sweeper.recovered", within_s=8)
    assert attempts(database, run_id) == [0]
    until(lambda: second.ask()["sweeper"]["recovered_24h"] == 1, 2)


def test_the_sweeper_lives_through_a_database_that_is_gone_for_a_while(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    pid = daemon.pid_of("sweeper")

    for _ in range(3):
        daemon.until("supervisor.ready")
        terminate_all(database, "t: sweeper")
        until(lambda: connected(database) >= 3)

    assert daemon.pid_of("sweeper") == pid


def test_a_sweeper_whose_calls_are_refused_tries_slowly(setup, database):
    setup.flow("alpha")
    daemon = setup.serve()
    conn = database.connect()
    conn.execute("alter function pgflowd.sweep_dead rename to not_here")
    run_id = start_marked(setup, database, s=0.5)
    daemon.kill("alpha")

    failed = daemon.until("sweeper.failed", count=4, part="tasks of ended workers")
    status = until(lambda: with_code(daemon, "E302"), 10)
    conn.execute("alter function pgflowd.not_here rename to sweep_dead")

    assert [each["level"] for each in failed[:2]] == ["error", "debug"]
    times = [datetime.fromisoformat(record["time"]) for record in failed]
    pauses = [later - sooner for sooner, later in pairwise(times)]
    least = [timedelta(seconds=0.09 * 2**nr) for nr in range(3)]  # from reconnect_min, doubled
    assert all(pause > most for pause, most in zip(pauses, least, strict=True)), pauses
    assert status["state"] == "degraded"
    assert daemon.events("sweeper.lost") == [], "the other parts go on"
    until(lambda: is_completed(database, run_id), 5 * 2)
    assert daemon.events("child.restarted", child="sweeper") == []


def with_code(daemon, code):
    status = daemon.ask()
    return status if code in [each["code"] for each in status["problems"]] else None


def test_the_sweeper_reports_the_state_of_the_database(setup, database):
    setup.flow("alpha")
    daemon = setup.serve(recovery={"recovery_interval": "200ms"})

    until(lambda: daemon.ask()["database"]["rtt_s"] is not None, 7)

    database_status = daemon.ask()["database"]
    assert database_status["server"][:2].isdigit()
    assert database_status["pgmq"]
    assert database_status["schema"] >= 1
    assert abs(database_status["clock_skew_s"]) < 1


@covers("row 87")
def test_a_setting_that_risks_data_is_a_problem_in_the_status(setup, database):
    conn = database.connect()
    conn.execute(f"alter database {database.name} set synchronous_commit = off")
    setup.flow("alpha")
    daemon = setup.serve()

    daemon.until("sweeper.problem", code="W315")
    until(lambda: "W315" in [each["code"] for each in daemon.ask()["problems"]], 7)


@covers("rule 57")
def test_the_sweeper_renews_the_rows_of_idle_workers(setup, database):
    for slug in ("alpha", "beta"):
        setup.flow(slug)
    setup.serve(worker={"heartbeat_interval": "300ms"})
    read = "select min(last_heartbeat_at) from pgflow.workers where stopped_at is null"
    conn = database.connect()
    first = conn.execute(read).fetchone()[0]

    until(lambda: conn.execute(read).fetchone()[0] > first, 5)

    assert connected(database) == 4, "one of each worker, of the listener, of the sweeper"


@covers("rule 40", "rule 57")
@pytest.mark.parametrize(
    "change", ["update pgflow.workers set deprecated_at = now()", "delete from pgflow.workers"]
)
def test_an_idle_worker_learns_of_its_row_through_the_sweeper(setup, database, change):
    setup.flow("alpha")
    daemon = setup.serve(worker={"heartbeat_interval": "300ms"})

    database.connect().execute(change)

    daemon.until("child.exited", status=10)
    daemon.until("child.ready", child="worker alpha", count=2)
    assert daemon.events("child.restarted") == []
