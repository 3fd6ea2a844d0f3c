"""
Stress: when everything happens at once, nothing is lost or done twice, and counters are right.

PGFLOWD_STRESS_S is its length (6 s), PGFLOWD_STRESS_SEED repeats the same choices.
"""

from __future__ import annotations

import os
import random

import pytest
from support.covers import covers
from support.lease_stress import Stress
from support.leases import LeaseDatabase

# the common path must never need the other one, which would hide why
WITHOUT_A_NET = """
    create or replace function pgflowd.report(reports jsonb, outputs text[])
    returns table (token bigint, verdict text, sqlstate text, message text, run_status text)
    language sql set search_path = '' as $$
      select token, verdict, sqlstate, message, run_status
        from unnest(pgflowd._report_all(pgflowd._parse_reports(report.reports),
                                        report.outputs::jsonb[])) order by ord
    $$
"""


@covers("database 8")
@pytest.mark.parametrize("db", ["all", "off"], indirect=True)
def test_many_actors_at_once_lose_nothing_and_count_right(db: LeaseDatabase) -> None:
    db.do(WITHOUT_A_NET)
    seed = int(os.environ.get("PGFLOWD_STRESS_SEED") or random.SystemRandom().getrandbits(32))
    stress = Stress(db, seed, float(os.environ.get("PGFLOWD_STRESS_S") or 6))
    print(f"seed {seed}")  # noqa: T201

    stress.go()

    print(_summary(stress))  # noqa: T201
    assert not db.open_runs(), "every run ends"
    assert stress.seen["completed"] > 100
    assert not db.rows("select * from pgflowd.waits"), "every wait ends"
    assert max(stress.completed.values()) == 1, "nothing is completed twice"
    assert not stress.overlaps(), "no task begins anew while it is executed under a lease"
    for name, query in LOSSES.items():
        assert not db.rows(query), name
    for (run, step, index), output in stress.outputs.items():
        stored = db.value(
            "select output = %s::jsonb from pgflow.step_tasks"
            " where (run_id, step_slug, task_index) = (%s, %s, %s)",
            output,
            run,
            step,
            index,
        )
        assert stored, f"the output that was accepted is the one stored: {run} {step} {index}"
    for flow in stress.flows:
        assert not db.queue(flow), "no message is left"
    query = "select deadlocks from pg_stat_database where datname = current_database()"
    assert db.value(query) == 0


def _summary(stress: Stress) -> str:
    runs = "select status, count(*) from pgflow.runs group by 1 order by 1"
    outcomes = "select outcome, count(*) from pgflowd.attempt_history group by 1 order by 1"
    counted = [dict(map(tuple, stress.db.rows(query))) for query in (runs, outcomes)]
    answers = f"{dict(stress.seen)}, {len(stress.met)} met"
    return f"runs {counted[0]}, attempts {counted[1]}, answers {answers}"


LOSSES = {
    "a failed run says why": """
        select r.run_id from pgflow.runs r where r.status = 'failed'
           and not exists (select from pgflowd.runs c where c.run_id = r.run_id)
           and not exists (select from pgflow.step_tasks t
                            where t.run_id = r.run_id and t.status = 'failed'
                              and starts_with(t.error_message, 'stalled'))""",
    "a run's steps are counted": """
        select r.run_id from pgflow.runs r where r.status = 'completed' and (
               select count(*) from pgflow.step_states s where s.run_id = r.run_id
                  and s.status = 'completed') <> (
               select count(*) from pgflow.steps d where d.flow_slug = r.flow_slug)""",
    "no lease of ours outlives its run": """
        select run_id from pgflowd.attempt_history where live""",
}
