"""
History: the attempts that are kept, and what they cost.
"""

from __future__ import annotations

import psycopg
import pytest
from support.leases import LeaseDatabase, element


def test_each_setting_of_the_history_keeps_its_outcomes(db: LeaseDatabase) -> None:
    flow = db.flow("m*", "x", max_attempts=3)
    run = db.start(flow, [1, 2, 3])
    worker = db.worker(flow)
    tasks = {(task.step_slug, task.task_index): task for task in db.claim(flow, worker)}

    db.fail(tasks["m", 0])
    db.release(tasks["m", 1])
    db.lapse(tasks["m", 2])
    again = {task.task_index: task for task in db.claim(flow, worker)}
    assert db.outcomes(run, "m", 0) == ["failed", None]
    assert db.outcomes(run, "m", 1) == ["released", None]
    assert db.outcomes(run, "m", 2) == ["stalled", None]
    db.complete(again[0])
    db.report(element(again[1]), element(again[2]))

    assert db.outcomes(run, "m", 0) == db.kept("failed", "completed")
    assert db.outcomes(run, "m", 1) == db.kept("released", "completed")
    assert db.outcomes(run, "m", 2) == db.kept("stalled", "completed")


def test_a_task_that_failed_leaves_what_the_setting_keeps(db: LeaseDatabase) -> None:
    flow = db.flow("a", max_attempts=2)
    runs = [db.start(flow), db.start(flow)]
    worker = db.worker(flow)

    for _ in range(2):
        one, other = db.claim(flow, worker)
        db.fail(one, "first", error_type="ValueError", traceback="line 1")
        db.report(element(other, "timed_out", error_message="slow"))

    assert db.outcomes(one.run_id) == db.kept("failed", "failed")
    assert db.outcomes(other.run_id) == db.kept("timed_out", "timed_out")
    assert {db.status(run) for run in runs} == {"failed"}


def test_a_late_result_is_kept_by_every_setting(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b")
    run = db.start(flow)
    one, other = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.step_slug)
    db.cancel(run)

    assert db.complete(one, {"one": 1}) == "late"
    assert db.report(element(other, output='{"two": 2}'))[0].verdict == "late"

    assert db.value("select output from pgflowd.attempts where step_slug = 'a'") == {"one": 1}
    assert db.value("select output from pgflowd.attempts where step_slug = 'b'") == {"two": 2}


def test_texts_are_cut_to_what_we_keep(db: LeaseDatabase) -> None:
    flow = db.flow("a", "b")
    run = db.start(flow)
    one, other = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.step_slug)
    long = {"error_type": "T" * 999, "traceback": "x" * 99999}

    db.fail(one, "m" * 9999, **long)
    db.report(element(other, "failed", error_message="m" * 9999, **long))

    lengths = (
        "select length(error_type) as t, length(error_message) as m, length(traceback) as b"
        " from pgflowd.attempts"
    )
    assert [tuple(row) for row in db.rows(lengths)] == [(200, 4000, 16000)] * 2
    assert len(db.task(run).error_message) == 4000


def test_a_failure_without_words_gets_some(own: LeaseDatabase) -> None:
    db = own
    flow = db.flow("a", "b")
    run = db.start(flow)
    one, other = sorted(db.claim(flow, db.worker(flow)), key=lambda task: task.step_slug)

    db.fail(one, "", error_type="KeyError")
    db.report(element(other, "crashed"))

    assert db.task(run, "a").error_message == "KeyError"
    assert db.task(run, "b").error_message == "crashed"


def test_an_open_attempt_that_its_task_no_longer_names_reads_as_lost(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = db.flow()
    run = db.start(flow)
    task = db.claim_one(flow, db.worker(flow))
    db.upstream_complete(task)

    assert db.outcomes(run) == ["lost"]
    assert db.value("select ended_at is null from pgflowd.attempts")
    assert db.report(element(task))[0].verdict == "lost"
    assert not db.value("select ended_at is null from pgflowd.attempts")


def test_claims_and_reports_cost_an_insert_and_a_hot_update_each(own: LeaseDatabase) -> None:
    flow = own.flow("m*")
    own.start(flow, list(range(120)))
    worker = own.worker(flow)

    tasks = own.claim(flow, worker, 40)
    for _ in range(3):
        own.report(*map(element, tasks))
        tasks = own.claim(flow, worker, 40)

    own.do("select pg_stat_force_next_flush()")
    cost = own.row(
        "select n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del from pg_stat_user_tables"
        " where schemaname = 'pgflowd' and relname = 'attempts'"
    )
    assert tuple(cost) == (120, 120, 120, 0)


WRITTEN = "select changed_by from pgflowd.settings"


def test_settings_have_defaults_and_return_their_old_value(own: LeaseDatabase) -> None:
    assert own.value("select pgflowd.setting('history')") == "all"
    assert own.value("select pgflowd.setting('crash_limit')") == 5

    assert own.set("history", "off") == "all"
    assert own.set("history", "failures") == "off"
    assert own.value("select pgflowd.setting('history')") == "failures"
    assert own.value(f"{WRITTEN} where name = 'history'") == "test"


@pytest.mark.parametrize(
    ("name", "value"),
    [("history", "some"), ("history", None), ("history", 1), ("crash_limit", 0),
     ("crash_limit", 1.5), ("crash_limit", "5"), ("max_map_elements", 999),
     ("checkpoint_max", 1000), ("checkpoint_max", 20_000_000), ("colour", "blue")],
)  # fmt: skip
def test_a_bad_setting_is_refused(own: LeaseDatabase, name: str, value: object) -> None:
    with pytest.raises(psycopg.Error) as refused:
        own.set(name, value)

    assert refused.value.sqlstate == "PF020"
    assert "test" not in own.column(WRITTEN)


@pytest.mark.parametrize("value", ['"30d"', '"1h30m"', '"1.5h"', "null"])
def test_a_retention_is_a_duration_or_null(own: LeaseDatabase, value: str) -> None:
    own.do("select pgflowd.set_setting('retention_failed', %s::jsonb, 'me')", value)

    assert own.value("select pgflowd.setting('retention_failed')::text") == value


@pytest.mark.parametrize(
    "value", ['"30m"', '"30m31m"', '"30"', "30", '"-1d"', '"30 days ago"', '""', "true"]
)
def test_what_would_delete_by_mistake_is_no_retention(own: LeaseDatabase, value: str) -> None:
    with pytest.raises(psycopg.Error, match="retention_completed does not take") as raised:
        own.do("select pgflowd.set_setting('retention_completed', %s::jsonb, 'me')", value)

    assert raised.value.sqlstate == "PF020"


def test_the_list_of_settings_says_who_has_changed_one(own: LeaseDatabase) -> None:
    own.do("select pgflowd.set_setting('crash_limit', '7', 'jane')")

    found = own.rows("select name, value, changed_by from pgflowd.list_settings()")

    assert ("crash_limit", 7, "jane") in [tuple(row) for row in found]
    assert ("retention_completed", None, None) in [tuple(row) for row in found]
