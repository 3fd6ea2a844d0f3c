"""What workers did, by minutes and hours: added, read, added up, and forgotten."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.leases import LeaseDatabase
from support.rows_read import rows_read

from pgflowd.core.metrics.definitions import BOUNDS_S
from pgflowd.db.flows import flow_stats, flow_work, roll_up_minutes
from pgflowd.db.query import execute
from pgflowd.db.waits import undecided_tasks, waiting_tasks
from pgflowd.db.workers import add_minute

BUCKETS = len(BOUNDS_S) + 1
HOUR_S, DAY_S = 3600.0, 86400.0


def histogram(**counts: int) -> list[int]:
    """So many in the bucket that ends at `b0_05` and the like; `more`: above the last."""
    found = [0] * BUCKETS
    for name, count in counts.items():
        at = -1 if name == "more" else BOUNDS_S.index(float(name[1:].replace("_", ".")))
        found[at] = count
    return found


def stats(db: LeaseDatabase, flow: str, since_s: float = HOUR_S) -> dict[str, Any]:
    return {each.step_slug: each for each in execute(db.conn, flow_stats(flow, since_s))}


def age(db: LeaseDatabase, by: timedelta) -> None:
    db.rows("update pgflowd.minutes set at = at - %s where not is_hour", by)


def test_the_bounds_are_those_of_the_metrics(own: LeaseDatabase) -> None:
    assert own.value("select pgflowd._time_bounds()") == list(BOUNDS_S)


@pytest.mark.parametrize(
    ("counts", "share", "expected"),
    [
        (histogram(), 0.5, None),
        (histogram(b1=10), 0.5, 0.75),  # evenly between 0.5 and 1
        (histogram(b0_005=1), 1.0, 0.005),
        (histogram(b1=50, b10=50), 0.95, 9.5),
        (histogram(b1=1, more=99), 0.5, 300.0),
    ],
)
def test_a_quantile_is_as_exact_as_the_bounds(
    own: LeaseDatabase, counts: list[int], share: float, expected: float | None
) -> None:
    found = own.value("select pgflowd._quantile(%s::bigint[], %s)", counts, share)
    assert found == (None if expected is None else pytest.approx(expected))


def test_numbers_are_those_of_runs_counted_by_hand(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b:a")
    first = {"step": "a", "completed": 6, "failed": 1, "ran": histogram(b1=7)}
    again = {"step": "a", "completed": 2, "crashed": 1, "ran": histogram(b10=3)}
    runs = {"step": "", "completed": 4, "failed": 1}
    execute(own.conn, add_minute(flow, [first, runs, {"step": "b", "timed_out": 1}]))
    execute(own.conn, add_minute(flow, [again, {"step": "a2", "waited": histogram(b5=1)}]))

    found = stats(own, flow)

    assert list(found) == ["", "a2", "a", "b"]
    a = found["a"]
    assert (a.completed, a.failed, a.timed_out, a.crashed) == (8, 1, 0, 1)
    assert (a.ended, a.failure_rate, a.per_minute) == (10, 0.2, 10 / 60)
    assert (a.ran_p50_s, a.ran_p95_s) == (pytest.approx(6 / 7), pytest.approx(9.1667, abs=1e-3))
    assert (a.waited_p50_s, found["a2"].waited_p50_s) == (None, pytest.approx(3.75))
    assert (found[""].completed, found[""].failure_rate) == (4, 0.2)
    assert found["b"].timed_out == 1
    assert stats(own, own.flow()) == {}


def test_only_what_is_within_the_time_counts(db: LeaseDatabase) -> None:
    flow = db.flow()
    execute(db.conn, add_minute(flow, [{"step": "a", "completed": 1}]))
    age(db, timedelta(hours=2))

    assert stats(db, flow) == {}
    assert stats(db, flow, 3 * HOUR_S)["a"].completed == 1


def test_minutes_become_hours_and_hours_go(own: LeaseDatabase) -> None:
    flow = own.flow()
    for minutes in range(3):
        step = {"step": "a", "completed": 1, "ran": histogram(b1=1)}
        execute(own.conn, add_minute(flow, [step, {"step": "", "completed": 1}]))
        age(own, timedelta(minutes=minutes))
    age(own, timedelta(days=3))
    before = stats(own, flow, 10 * DAY_S)
    hours = own.value("select count(distinct date_trunc('hour', at)) from pgflowd.minutes")

    assert execute(own.conn, roll_up_minutes()) > 0
    assert execute(own.conn, roll_up_minutes()) == 0
    assert own.value("select count(*) from pgflowd.minutes where is_hour") == 2 * hours
    assert own.value("select count(*) from pgflowd.minutes where not is_hour") == 0
    assert stats(own, flow, 10 * DAY_S) == before
    assert before["a"].completed == 3

    own.rows("update pgflowd.minutes set at = at - interval '90 days'")
    execute(own.conn, roll_up_minutes())
    assert own.value("select count(*) from pgflowd.minutes") == 0


def test_open_work_is_counted_by_what_it_waits_for(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    own.start(flow, [1, 2, 3, 4])
    tasks = own.claim(flow, own.worker(flow), max_tasks=3)
    own.suspend(tasks[0])
    own.suspend(tasks[1], {"kind": "need", "needs": ["gpu"]})

    (work,) = execute(own.conn, flow_work(flow))
    assert (work.ready, work.running, dict(work.waits)) == (1, 1, {"sleep": 1, "need": 1})
    assert execute(own.conn, waiting_tasks()) == {flow: {"sleep": 1, "need": 1}}
    (undecided,) = execute(own.conn, undecided_tasks())
    assert (undecided.kind, undecided.name, undecided.tasks) == ("need", "gpu", 1)
    assert undecided.run_id == str(tasks[0].run_id)
    own.value("select pgflowd.pause_flow(%s, 'too hot', 'jane')", flow)
    assert execute(own.conn, undecided_tasks())[1:] == [(flow, "paused", "jane: too hot", None, 0)]


def test_a_flow_that_is_deleted_takes_its_minutes_along(own: LeaseDatabase) -> None:
    flow = own.flow()
    execute(own.conn, add_minute(flow, [{"step": "a", "completed": 1}]))
    own.rows("select pgflow.delete_flow_and_data(%s)", flow)
    assert own.value("select count(*) from pgflowd.minutes") == 0


MANY_RUNS = """
set session_replication_role = replica;
insert into pgflow.runs (flow_slug, status, input, output, started_at, completed_at)
  select %s, 'completed', '{}', '{}', now(), now() from generate_series(1, 100000);
insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, name)
  select gen_random_uuid(), 'a', 0, %s, 'signal', 'paid' from generate_series(1, 50000);
set session_replication_role = origin;
"""


def test_many_runs_and_waits_cost_no_more(own: LeaseDatabase) -> None:
    flow = own.flow()
    execute(own.conn, add_minute(flow, [{"step": "a", "completed": 1, "ran": histogram(b1=1)}]))
    own.rows("""
        insert into pgflowd.minutes (flow_slug, at, step_slug, completed, ran)
          select flow_slug, at - n * interval '1 min', step_slug, completed, ran
            from pgflowd.minutes, generate_series(1, 2000) as n
    """)
    query = flow_stats(flow, HOUR_S)
    with own.conn.transaction(force_rollback=True):
        own.conn.execute(MANY_RUNS.replace("%s", f"'{flow}'").encode())
        assert rows_read(own.conn, query.sql, *query.params) < 1_000
        for function in ("waiting_tasks", "list_flows"):  # counts stop at ten thousand
            assert rows_read(own.conn, f"select * from pgflowd.{function}()") < 25_000
        assert execute(own.conn, waiting_tasks()) == {flow: {"signal": 10_000}}
