"""
Claims, reports and looks read what they take, however many tasks wait at a gate.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from sql.leases import test_step_limits as limits
from support.covers import covers
from support.database import Row
from support.leases import LeaseDatabase, element
from support.rows_read import rows_by_relation

MANY = 3_000
STEPS: dict[str, Any] = {
    "a": {"needs": ["tpu"]},
    "b": {"limit": {"slots": 1, "path": ["run", "key"]}},
    "c": {"limit": {"slots": 2, "name": "busy"}},
}
FILL = f"""
set session_replication_role = replica;
create temp table fresh as
  select gen_random_uuid() as run_id, n, step from generate_series(1, {MANY}) as n,
         unnest('{{a,b,c}}'::text[]) as step;
insert into pgflow.runs (run_id, flow_slug, input, remaining_steps)
  select run_id, 'gated', '{{}}', 1 from fresh;
insert into pgflow.step_states (flow_slug, run_id, step_slug, status, remaining_tasks,
                                initial_tasks, started_at)
  select 'gated', run_id, step, 'started', 1, 1, now() from fresh;
insert into pgflow.step_tasks (flow_slug, run_id, step_slug, message_id, status)
  select 'gated', run_id, step, 1000000000 + n, 'queued' from fresh;
insert into pgflowd.waits (run_id, step_slug, task_index, flow_slug, kind, name)
  select run_id, step, 0, 'gated', case step when 'a' then 'need' else 'limit' end,
         case step when 'a' then 'tpu' when 'c' then 'busy' else 'gated/b:' || n end from fresh;
insert into pgflowd.slots (run_id, step_slug, task_index, limit_key, most)
  select run_id, step, 0, 'gated/b:' || n, 1 from fresh where step = 'b';
reset session_replication_role;
drop table fresh;
"""
CLAIM = "select * from pgflowd.claim('gated', %s, 10, caps => %s::text[])"
MORE = 400  # rows, of ten tasks


@pytest.fixture
def filled(own: LeaseDatabase) -> uuid.UUID:
    """Thousands wait, and ten runs have just begun; statistics are those of small tables."""
    plain = {"stepType": "single", "dependencies": [], "whenUnmet": "skip", "whenExhausted": "fail"}
    undefined = {f"{each}InputPattern": {"defined": False} for each in ("required", "forbidden")}
    steps = [{"slug": step, **plain, **undefined, "options": STEPS[step]} for step in STEPS]
    shape = json.dumps({"steps": steps, "options": {}})
    own.value("select pgflowd.define('gated', %s::jsonb)", shape)
    worker = own.worker("gated")
    own.do("vacuum analyze")
    own.do(FILL)
    own.do("""select pgflow.start_flow('gated', jsonb_build_object('key', 'new ' || n))
                from generate_series(1, 10) as n""")
    return worker


def of_step(tasks: list[Row], step: str) -> list[Row]:
    return [task for task in tasks if task.step_slug == step]


def test_a_claim_reads_what_it_takes_beside_thousands_at_a_gate(
    own: LeaseDatabase, filled: uuid.UUID
) -> None:
    with own.conn.transaction():
        assert len(of_step(own.claim("gated", filled), "b")) >= 1
    for caps in (None, ["gpu"], ["tpu"]):
        with own.conn.transaction():
            read = rows_by_relation(own.conn, CLAIM, filled, caps)
            assert sum(read.values()) < MORE, read


def test_a_report_and_a_look_read_what_they_pass_on(own: LeaseDatabase, filled: uuid.UUID) -> None:
    tasks = of_step(own.claim("gated", filled, 30), "b")
    reports = [element(task) for task in tasks]
    outputs = [one.pop("output") for one in reports]
    report = "select * from pgflowd.report(%s::jsonb, %s::text[])"

    with own.conn.transaction():
        read = rows_by_relation(own.conn, report, json.dumps(reports), outputs)
        assert sum(read.values()) < 40 * len(tasks) + MORE, read
    with own.conn.transaction():
        read = rows_by_relation(own.conn, "select * from pgflowd.process_due()")
        assert sum(read.values()) < 40 * len(tasks) + MORE, read


def paused_run(db: LeaseDatabase) -> uuid.UUID:
    """A run of thousands in line, paused."""
    limits.define(db, "wide", "map", limit=STEPS["c"]["limit"])
    run, worker = db.start("wide", list(range(MANY))), db.worker("wide")
    begun = [task for _ in range(3) for task in db.claim("wide", worker, MANY)]
    db.value("select pgflowd.pause(%s)", run)
    for task in begun:
        db.complete(task)
    return run


def paused_flow(db: LeaseDatabase) -> None:
    db.value("select pgflowd.pause_flow('gated')")


@covers("attack 9")
@pytest.mark.parametrize("pause", [paused_run, paused_flow])
def test_who_is_paused_is_in_the_way_of_no_claim(
    own: LeaseDatabase, filled: uuid.UUID, pause: Any
) -> None:
    """Each claim and report of the key walked past all of them."""
    paused_flow(own)
    pause(own)
    assert own.value("select count(*) from pgflowd.waits where name = 'busy'") >= MANY - 10
    limits.define(own, "other", limit=STEPS["c"]["limit"])
    worker = own.worker("other")
    for _ in range(4):
        own.start("other")
    with own.conn.transaction():
        assert len(own.claim("other", worker)) == 2, "of two places"
    for query, given in (
        ("select * from pgflowd.claim('other', %s, 10)", [worker]),
        ("select * from pgflowd.process_due()", []),
        ("select pgflowd.refill_limits('bu', 1)", []),
    ):
        with own.conn.transaction():
            read = rows_by_relation(own.conn, query, *given)
            assert sum(read.values()) < MORE, (query, read)
