"""What a run or task is called, and the lists of both: whatever waits, and when nothing does."""

from __future__ import annotations

import itertools
from typing import Any
from uuid import UUID

import pytest
from support.database import key
from support.rows_read import rows_by_relation, rows_read
from support.shop import Shop

FUTURE, PAST = "now() + interval '1 h'", "now() - interval '1 h'"


@pytest.fixture
def shop(database) -> Shop:
    made = Shop(database)
    made.deploy()
    return made


def run_status(shop: Shop, run: UUID) -> str:
    return str(shop.value("select status from pgflowd.run_status where run_id = %s", run))


def task_statuses(shop: Shop, run: UUID) -> dict[str, str]:
    sql = "select step_slug || '#' || task_index, status from pgflowd.task_status where run_id = %s"
    return dict(shop.rows(sql, run))


def listed(shop: Shop, **given: Any) -> list[tuple[str, str]]:
    named = ", ".join(f"{name} => %s" for name in given)
    sql = f"select step_slug || '#' || task_index, status from pgflowd.list_tasks({named})"
    return [tuple(row) for row in shop.rows(sql, *given.values())]


@pytest.mark.parametrize(
    ("status", "is_cancelled", "open_tasks", "waits", "expected"),
    [
        ("started", False, 2, 0, "started"),
        ("started", False, 2, 1, "started"),
        ("started", False, 2, 2, "waiting"),
        ("started", False, None, 0, "started"),
        ("completed", False, None, 0, "completed"),
        ("failed", False, None, 0, "failed"),
        ("failed", True, None, 0, "cancelled"),
        ("paused", False, 1, 1, "paused"),  # of a later core
    ],
)
def test_the_rule_of_runs(shop, status, is_cancelled, open_tasks, waits, expected):
    sql = "select pgflowd._run_status(%s, %s, %s, %s)"

    assert shop.value(sql, status, is_cancelled, open_tasks, waits) == expected


def test_the_rule_of_tasks(shop):
    def judged(status: str, wait_kind: str | None, held_until: str) -> str:
        sql = f"select pgflowd._task_status(%s, %s, {held_until}, now())"
        return str(shop.value(sql, status, wait_kind))

    for wait_kind, until in itertools.product(("sleep", "paused", None), (FUTURE, PAST, "null")):
        for ended in ("completed", "failed", "skipped", "cancelled"):
            assert judged(ended, wait_kind, until) == ended
        assert judged("started", wait_kind, until) == ("lapsed" if until == PAST else "leased")
    for wait_kind, expected in (("sleep", "waiting"), ("need", "waiting"), ("paused", "paused")):
        found = [judged("queued", wait_kind, until) for until in (FUTURE, PAST, "null")]
        assert found == [expected] * 3
    assert [judged("queued", None, until) for until in (FUTURE, PAST, "null")] == [
        "delayed", "ready", "ready",
    ]  # fmt: skip


def test_the_rules_are_immutable_and_each_stands_in_one_function(shop):
    sql = (
        "select proname, provolatile from pg_proc where proname in ('_run_status', '_task_status')"
    )

    assert sorted(map(tuple, shop.rows(sql))) == [("_run_status", "i"), ("_task_status", "i")]


def test_a_run_waits_when_each_of_its_open_tasks_does(shop):
    run = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    keys = shop.claim_all()
    assert run_status(shop, run) == "started"

    shop.suspend(keys["sentiment#0"], kind="signal", name="go")
    assert run_status(shop, run) == "started"
    assert task_statuses(shop, run) == {
        "website#0": "completed", "sentiment#0": "waiting", "summary#0": "leased",
    }  # fmt: skip

    shop.suspend(keys["summary#0"], kind="sleep", in_s=3600)
    assert run_status(shop, run) == "waiting"
    assert shop.status(run) == "started"  # the core never contradicts
    assert task_statuses(shop, run)["summary#0"] == "waiting"

    shop.database.client.cancel(run, reason="enough")
    assert run_status(shop, run) == "cancelled"


def test_a_task_is_ready_delayed_leased_or_lapsed(shop):
    run = shop.start("store_items", ["a", "b"])
    assert set(task_statuses(shop, run).values()) == {"ready"}

    keys = shop.claim_all("store_items")
    shop.fail(keys["store#0"], "busy")
    assert task_statuses(shop, run) == {"store#0": "delayed", "store#1": "leased"}

    shop.stall()
    assert task_statuses(shop, run) == {"store#0": "delayed", "store#1": "lapsed"}
    assert sorted(listed(shop)) == sorted(listed(shop, run_id=run))
    assert sorted(listed(shop)) == [("store#0", "delayed"), ("store#1", "lapsed")]
    assert listed(shop, statuses=["lapsed"]) == [("store#1", "lapsed")]


def test_open_tasks_are_listed_by_run_flow_and_status_the_oldest_first(shop):
    first, second = shop.start(), shop.start()
    tasks = shop.claim("analyze_website", shop.worker("analyze_website", shop.worker_id), 10)
    for task, name in zip(tasks, ("one", "two"), strict=True):
        shop.suspend(key(task), kind="signal", name=name)
    shop.start("send_email")

    names = "select run_id, name from pgflowd.list_tasks(statuses => '{waiting}')"
    assert [row.name for row in shop.rows(names)] == ["one", "two"]
    assert listed(shop, run_id=second) == [("website#0", "waiting")]
    assert listed(shop, flow_slug="send_email") == [("perform#0", "ready")]
    assert listed(shop, statuses=["ready"]) == [("perform#0", "ready")]
    assert listed(shop, statuses=["waiting"], max_rows=1) == [("website#0", "waiting")]
    assert len(listed(shop)) == 3
    shop.database.client.cancel(first)
    assert len(listed(shop)) == 2


def test_a_waiting_run_is_found_however_many_newer_ones_there_are(shop):
    old = shop.start()
    shop.suspend(shop.claim_all()["website#0"], kind="signal", name="go")
    newer = [shop.start() for _ in range(3)]

    def runs(statuses: str | None, most: int = 20) -> list[UUID]:
        sql = "select run_id from pgflowd.list_runs(statuses => %s::text[], max_runs => %s)"
        return shop.column(sql, statuses, most)

    assert runs("{waiting}", 1) == [old]
    assert runs("{started}") == newer[::-1]
    assert runs("{started,waiting}") == [*newer[::-1], old]


def test_a_flow_has_its_waiting_tasks_and_runs_counted(shop):
    waiting, both = shop.start(), shop.start()
    keys = shop.claim_all()
    shop.suspend(keys["website#0"], kind="signal", name="go")  # of the newer run
    shop.complete(
        shop.row("select run_id, step_slug, task_index, token from pgflowd.attempts"
                 " where run_id = %s", waiting)
    )  # fmt: skip
    next_keys = shop.claim_all()
    shop.suspend(next_keys["summary#0"], kind="sleep", in_s=60)
    assert run_status(shop, both) == "waiting"

    flow = shop.row("select * from pgflowd.list_flows() where flow_slug = 'analyze_website'")
    assert (flow.waiting, flow.running, flow.queued, flow.active_runs) == (2, 1, 0, 2)
    assert shop.value("select pgflowd.active_runs('analyze_website')") == 2
    kinds = shop.rows('select * from pgflowd.waiting_tasks() order by kind collate "C"')
    assert kinds == [("analyze_website", "signal", 1), ("analyze_website", "sleep", 1)]
    view = shop.row("select * from pgflowd.flow_status where flow_slug = 'analyze_website'")
    assert (view.waiting, view.running) == (2, 1)


def test_a_step_counts_what_waits_apart_from_what_is_queued(shop):
    run = shop.start("store_items", ["a", "b", "c"])
    keys = shop.claim_all("store_items")
    shop.suspend(keys["store#0"], kind="sleep", in_s=60)
    shop.fail(keys["store#1"], "busy")

    step = shop.row("select * from pgflowd.run_steps(%s)", run)

    assert (step.tasks, step.waiting, step.queued, step.running) == (3, 1, 1, 1)
    retry_s, sleep_s = 20, 60
    left_s = shop.value("select extract(epoch from %s - now())::float8", step.next_at)
    assert 0 < left_s < retry_s < sleep_s


def test_queued_messages_are_unserved_until_a_worker_lives_or_sleeps(shop):
    served, unserved = "analyze_website", "send_email"
    shop.start()
    shop.start(unserved)
    shop.do("delete from pgflow.workers")
    query = "select flow_slug, queued, oldest_queued_s >= 0 from pgflowd.unserved_queues()"
    assert sorted(shop.rows(query)) == [(served, 1, True), (unserved, 1, True)]

    worker = shop.worker(served)
    assert shop.rows(query) == [(unserved, 1, True)]
    shop.do("update pgflow.workers set stopped_at = now(), last_heartbeat_at = now()")
    assert shop.rows(query) == [(unserved, 1, True)]  # it sleeps, and will be woken

    shop.do("update pgflow.workers set last_heartbeat_at = now() - interval '2 min'")
    assert worker and len(shop.rows(query)) == 2


QUERIES = [
    "select * from pgflowd.list_runs()",
    "select * from pgflowd.list_runs(statuses => '{started}')",
    "select * from pgflowd.list_flows()",
    "select pgflowd.active_runs('analyze_website')",
    "select * from pgflowd.waiting_tasks()",
    "select * from pgflowd.unserved_queues()",
]


@pytest.mark.parametrize("query", QUERIES)
def test_where_nothing_waits_a_list_reads_nothing_on_account_of_waits(shop, query):
    runs = [shop.start() for _ in range(3)]
    shop.claim_all()

    read = rows_by_relation(shop.conn, query)

    assert not [name for name in read if name.startswith("waits")]
    steps = [count for name, count in read.items() if name.startswith("step_states")]
    # how far each is, by index and table, and which steps of it may tell more
    assert sum(steps) in (0, 4 * len(runs), 8 * len(runs), 12 * len(runs))


@pytest.mark.parametrize("query", QUERIES)
def test_beside_very_many_waits_of_other_flows_a_list_counts_to_ten_thousand(shop, query):
    for _ in range(20):
        shop.start("send_email")
    before = rows_read(shop.conn, query)
    many_waits(shop, 30_000)
    shop.do("update pgflow.runs set started_at = '2000-01-01' where flow_slug = 'store_items'")

    assert rows_read(shop.conn, f"{query} limit 20") <= before + 2 * 30_000


def test_a_list_of_tasks_beside_very_many_waits_reads_those_that_it_shows(shop):
    many_waits(shop, 30_000)

    waiting = rows_read(shop.conn, "select * from pgflowd.list_tasks(statuses => '{waiting}')")
    signals = rows_read(shop.conn, "select * from pgflowd.list_signals(only_open => true)")

    assert waiting < 500
    assert signals < 10


def many_waits(shop: Shop, number: int) -> None:
    """A run of store_items, each element of which waits; by hand, as reports would take long."""
    run = shop.start("store_items", list(range(number)))
    shop.do("delete from pgmq.q_store_items")
    shop.do(
        "insert into pgflowd.waits"
        " (run_id, step_slug, task_index, flow_slug, kind, name, checkpoint)"
        " select run_id, step_slug, task_index, flow_slug, 'signal', 'go', 'signal go 1'"
        "   from pgflow.step_tasks where run_id = %s",
        run,
    )
