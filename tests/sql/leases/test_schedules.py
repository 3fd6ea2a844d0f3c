"""
Schedules: each tick has one run, whoever computes it how often, and nothing else is started.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from support.covers import covers
from support.database import Connection, Row
from support.leases import LeaseDatabase

T0 = datetime(2026, 3, 1, 9, tzinfo=UTC)
T1, T2, T3 = (T0 + timedelta(hours=hours) for hours in (1, 2, 3))
RUNS = """
    select run.run_id, run.labels ->> 'scheduled_for' as tick, run.state, run.created_by
      from pgflowd.runs as run where run.labels ->> 'schedule' = %s order by 2
"""


@pytest.fixture
def flow(own: LeaseDatabase) -> str:
    return own.flow()


def add(db: LeaseDatabase, flow: str, name: str = "hourly", **options: Any) -> str:
    given = {"cron": "0 * * * *", "overlap": "allow", **options}
    if "input" in given:
        given["input"] = json.dumps(given["input"])
    names = ", ".join(f"{key} => %s" for key in given)
    query = f"select pgflowd.set_schedule(%s, %s, {names})"
    return str(db.value(query, name, flow, *given.values()))


def row(db: LeaseDatabase, name: str = "hourly") -> Row:
    return db.row("select * from pgflowd.schedules where name = %s", name)


def due_at(db: LeaseDatabase, at: datetime, name: str = "hourly") -> None:
    """Let its next tick be this one."""
    db.do("update pgflowd.schedules set due_at = %s, ticks_from = %s where name = %s", at, at, name)


def tick(
    db: LeaseDatabase,
    due: datetime,
    next_at: datetime,
    *fires: datetime,
    name: str = "hourly",
    conn: Connection | None = None,
) -> bool:
    query = "select pgflowd.tick(%s, %s, %s, %s::timestamptz[])"
    return bool(db.value(query, name, due, next_at, list(fires), conn=conn))


def ticks(db: LeaseDatabase, name: str = "hourly") -> list[str]:
    """The hours of all runs of the schedule."""
    return [run.tick[11:16] for run in db.rows(RUNS, name)]


def define(db: LeaseDatabase, flow: str, *schedules: dict[str, Any]) -> None:
    """Define the flow with these schedules in its code."""
    shape = db.value("select pgflowd.flow_shape(%s)", flow)
    shape["schedules"] = [{**CODE, "name": flow, **each} for each in schedules]
    db.value("select pgflowd.define(%s, %s)", flow, json.dumps(shape))


CODE = {"cron": "0 3 * * *", "timezone": "UTC", "input": {}, "overlap": "skip", "catchup": "one"}


@covers("G24")
def test_a_tick_starts_one_run_with_its_labels(own: LeaseDatabase, flow: str) -> None:
    add(own, flow, input={"a": 1})
    due_at(own, T0)

    assert tick(own, T0, T1, T0)
    assert not tick(own, T0, T1, T0)

    (run,) = own.rows(RUNS, "hourly")
    assert (run.tick, run.created_by) == ("2026-03-01T09:00:00Z", "schedule hourly")
    assert own.value("select input from pgflow.runs where run_id = %s", run.run_id) == {"a": 1}
    found = row(own)
    assert (found.due_at, found.ticks_from, found.last_at) == (T1, T1, T0)
    assert found.last_run_id == run.run_id


def test_a_tick_that_is_computed_again_finds_its_run(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    for _ in range(2):
        due_at(own, T0)
        assert tick(own, T0, T2, T0, T1)

    assert ticks(own) == ["09:00", "10:00"]


def test_of_two_sweepers_one_lets_it_tick(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    other = own.connect()
    with other.transaction():
        assert tick(own, T0, T1, T0, conn=other)
        assert not tick(own, T0, T1, T0)

    assert ticks(own) == ["09:00"]


def test_a_sweeper_that_dies_has_done_nothing(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    other = own.connect()
    with pytest.raises(ZeroDivisionError), other.transaction():
        assert tick(own, T0, T1, T0, conn=other)
        raise ZeroDivisionError

    assert (ticks(own), row(own).due_at) == ([], T0)


@pytest.mark.parametrize(
    ("overlap", "statuses"),
    [
        ("skip", ["started"]),
        ("allow", ["started", "started", "started"]),
        ("wait", ["started", "blocked", "blocked"]),
        ("replace", ["cancelled", "cancelled", "started"]),
    ],
)
def test_overlap_decides_about_a_tick_while_the_last_run_goes_on(
    own: LeaseDatabase, flow: str, overlap: str, statuses: list[str]
) -> None:
    add(own, flow, overlap=overlap)
    due_at(own, T0)
    assert tick(own, T0, T1, T0)
    assert tick(own, T1, T2, T1)
    own.rows("select * from pgflowd.process_due()")
    assert tick(own, T2, T3, T2)
    own.rows("select * from pgflowd.process_due()")

    query = "select status from pgflowd.run_status where labels ? 'schedule' order by labels"
    assert own.column(query) == statuses
    assert row(own).last_at == (T0 if overlap == "skip" else T2)


def test_a_run_that_has_ended_does_not_stop_the_next(own: LeaseDatabase, flow: str) -> None:
    add(own, flow, overlap="skip")
    due_at(own, T0)
    tick(own, T0, T1, T0)
    own.complete(own.claim_one(flow, own.worker(flow)))

    assert tick(own, T1, T2, T1)  # before a sweep has told others of the end

    assert ticks(own) == ["09:00", "10:00"]


def test_a_run_that_cannot_start_is_told_and_the_schedule_goes_on(own: LeaseDatabase) -> None:
    flow = own.flow("items*")
    add(own, flow, input={"not": "a list"})
    due_at(own, T0)
    told: list[Any] = []
    own.conn.add_notice_handler(
        lambda notice: told.append((notice.sqlstate, notice.message_detail))
    )

    assert tick(own, T0, T1, T0)

    assert [code for code, _ in told] == ["PF013"]
    assert json.loads(told[0][1])["schedule"] == "hourly"
    found = row(own)
    assert found.due_at == T1 and "is not an array" in found.error
    (trouble,) = own.rows("select * from pgflowd.schedule_troubles()")
    assert trouble.name == "hourly" and "is not an array" in trouble.error
    add(own, flow, input=[1])
    assert row(own).error is None
    due_at(own, T1)
    assert tick(own, T1, T2, T1) and ticks(own) == ["10:00"]


def test_after_any_other_error_all_its_ticks_are_tried_again(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    own.do("""create function pg_temp.full() returns trigger language plpgsql as $$
              begin raise disk_full; end $$""")
    own.do("""create trigger is_full before insert on pgflow.runs for each row
              when (new.run_id is not null) execute function pg_temp.full()""")

    assert tick(own, T0, T2, T0, T1)

    found = row(own)
    assert (ticks(own), found.ticks_from) == ([], T0) and found.error is not None
    own.do("drop trigger is_full on pgflow.runs")
    assert tick(own, found.due_at, T2, T0, T1)
    assert ticks(own) == ["09:00", "10:00"] and row(own).error is None


def test_a_pause_is_no_outage(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)

    assert own.value("select pgflowd.pause_schedule('hourly', 'jane')") == "paused"
    assert own.value("select pgflowd.pause_schedule('hourly')") == "repeated"
    assert not tick(own, T0, T1, T0)
    assert (row(own).due_at, row(own).paused_by) == (None, "jane")
    assert own.value("select pgflowd.resume_schedule('hourly')") == "resumed"
    assert own.value("select pgflowd.resume_schedule('hourly')") == "repeated"

    now = own.value("select now()")
    assert now - row(own).ticks_from < timedelta(minutes=1)


def test_fire_starts_a_run_beside_the_ticks(own: LeaseDatabase, flow: str) -> None:
    add(own, flow, overlap="skip")
    due_at(own, T0)
    own.value("select pgflowd.pause_schedule('hourly')")

    first = own.row("select * from pgflowd.fire_schedule('hourly', 'jane')")
    second = own.row("select * from pgflowd.fire_schedule('hourly', 'jane')")

    assert (first.status, second.status) == ("started", "existing")
    assert second.run_id == first.run_id
    assert row(own).due_at is None
    (run,) = own.rows(RUNS, "hourly")
    assert run.created_by == "jane"


def test_definitions_bring_change_and_remove_the_schedules_of_the_code(
    own: LeaseDatabase, flow: str
) -> None:
    add(own, flow, "mine", overlap="skip")
    define(own, flow, {}, {"name": f"{flow}.quick", "cron": "@every 30s"})
    own.value("select pgflowd.pause_schedule(%s)", f"{flow}.quick")

    define(own, flow, {"name": f"{flow}.quick", "cron": "@every 40s", "input": {"a": 1}})

    names = own.column("select name from pgflowd.schedules order by name")
    assert names == sorted([f"{flow}.quick", "mine"])
    quick = row(own, f"{flow}.quick")
    assert (quick.cron, quick.origin, quick.input) == ("@every 40s", "code", {"a": 1})
    assert quick.paused_at is not None and quick.due_at is None
    shape = own.value("select pgflowd.flow_shape(%s)", flow)
    assert [each["name"] for each in shape["schedules"]] == [f"{flow}.quick"]
    define(own, flow)
    assert own.column("select name from pgflowd.schedules") == ["mine"]
    assert "schedules" not in own.value("select pgflowd.flow_shape(%s)", flow)


def test_a_definition_that_changes_nothing_forgets_no_tick(own: LeaseDatabase, flow: str) -> None:
    define(own, flow, {})
    due_at(own, T0, flow)

    define(own, flow, {})
    assert row(own, flow).due_at == T0
    define(own, flow, {"input": {"a": 1}})
    assert row(own, flow).ticks_from == T0


def test_another_expression_counts_from_now_and_keeps_what_is_due(
    own: LeaseDatabase, flow: str
) -> None:
    now = own.value("select now()")
    define(own, flow, {})
    for minute, before, after in ((1, -10, -10), (2, -600, -60), (3, 600, 0)):
        due_at(own, now + timedelta(seconds=before), flow)
        define(own, flow, {"cron": f"{minute} 1 * * *"})
        kept = row(own, flow).ticks_from - now
        assert timedelta(seconds=after) <= kept < timedelta(seconds=after + 10)


def test_a_name_belongs_to_who_has_it(own: LeaseDatabase, flow: str) -> None:
    other = own.flow()
    add(own, other, flow)
    define(own, flow, {})
    assert (row(own, flow).flow_slug, row(own, flow).origin) == (other, "operator")

    own.value("select pgflowd.remove_schedule(%s)", flow)
    define(own, flow, {})
    with pytest.raises(psycopg.Error, match="comes from the code") as refused:
        add(own, other, flow)
    assert refused.value.sqlstate == "PF009"


def test_a_flow_takes_its_schedules_with_it_but_not_when_it_is_made_anew(
    own: LeaseDatabase, flow: str
) -> None:
    add(own, flow, "mine")
    define(own, flow, {})
    shape = own.value("select pgflowd.flow_shape(%s)", flow)
    shape["steps"][0]["slug"] = "another"

    own.value("select pgflowd.define(%s, %s, true)", flow, json.dumps(shape))
    assert own.value("select count(*) from pgflowd.schedules") == 2
    own.do("select pgflow.delete_flow_and_data(%s)", flow)
    assert own.value("select count(*) from pgflowd.schedules") == 0


def test_a_deletion_under_way_is_not_waited_for(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    other = own.connect()
    with other.transaction():
        other.execute("select from pgflow.flows where flow_slug = %s for no key update", (flow,))
        assert not tick(own, T0, T1, T0)


def test_a_clock_that_was_put_back_does_not_stop_a_schedule(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    tick(own, T0, T1, T0)
    own.do("""update pgflowd.schedules
                 set ticked_at = now() + interval '1 day', due_at = now() + interval '25 hours'""")

    own.rows("select * from pgflowd.schedule_troubles()")

    assert row(own).due_at <= own.value("select now()")


def test_what_is_late_is_told(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    own.do("update pgflowd.schedules set due_at = now() - interval '2 minutes'")
    (trouble,) = own.rows("select * from pgflowd.schedule_troubles()")
    assert trouble.error.startswith("it was due 12")

    own.value("select pgflowd.sweeper_sleeps(gen_random_uuid(), 10)")
    (broken,) = own.rows("select * from pgflowd.violations()")
    assert (broken.invariant, "hourly" in broken.detail) == ("I16", True)
    due_at(own, own.value("select now() + interval '1 hour'"))


def test_the_sweep_learns_of_ticks(own: LeaseDatabase, flow: str) -> None:
    def look() -> Row:
        return own.row("select * from pgflowd.process_due()")

    assert (look().has_ticks, look().next_s) == (False, None)
    add(own, flow)
    assert look().has_ticks
    (due,) = own.rows("select * from pgflowd.due_schedules()")
    assert due.name == "hourly" and due.due_at <= due.read_at
    due_at(own, own.value("select now() + interval '1 hour'"))
    found = look()
    assert not found.has_ticks and 3590 < found.next_s <= 3600


def test_what_cannot_be_is_refused(own: LeaseDatabase, flow: str) -> None:
    deep = json.loads("[" * 501 + "]" * 501)
    for wrong in ({"overlap": "no"}, {"catchup": "no"}, {"cron": None}, {"timezone": None},
                  {"input": deep}):  # fmt: skip
        with pytest.raises(psycopg.Error) as refused:
            add(own, flow, **wrong)
        assert refused.value.sqlstate == "PF009"
    with pytest.raises(psycopg.Error) as unknown:
        add(own, "nothing")
    assert unknown.value.sqlstate == "PF002"
    for verb in ("pause_schedule", "resume_schedule", "remove_schedule", "fire_schedule"):
        with pytest.raises(psycopg.Error) as unknown:
            own.rows(f"select * from pgflowd.{verb}('nothing')")
        assert unknown.value.sqlstate == "PF002"


def test_a_list_has_the_last_run(own: LeaseDatabase, flow: str) -> None:
    add(own, flow)
    due_at(own, T0)
    tick(own, T0, own.value("select now() + interval '1 hour'"), T0)

    (found,) = own.rows("select * from pgflowd.list_schedules(%s)", flow)

    assert isinstance(found.last_run_id, UUID) and found.last_status == "started"
    assert (found.last_at, found.next_at) == (T0, row(own).due_at)
