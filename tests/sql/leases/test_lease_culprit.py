"""
A claim finds the one task that cannot be started, fails it with the text, and starts the others.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase

POISON = """
    create or replace function pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)
    returns jsonb language plpgsql stable as $$
    begin
      if run_id = '{run}' then raise exception 'no input' using errcode = '{state}'; end if;
      return '{{}}';
    end $$
"""


def ready_to_join(db: LeaseDatabase, flow: str, count: int = 1) -> list[uuid.UUID]:
    """Runs of which step j, which joins p and q, is queued."""
    runs = [db.start(flow) for _ in range(count)]
    for task in db.claim(flow, db.worker(flow), 2 * count):
        db.complete(task)
    return runs


def poison(db: LeaseDatabase, run: uuid.UUID, state: str = "P0001") -> None:
    """Let the input of a step of this run raise."""
    db.do(POISON.format(run=run, state=state))


def joined_steps(db: LeaseDatabase, **options: Any) -> str:
    return db.flow("p", "q", "j:p+q", **options)


@covers("database 1", "outside 1")
def test_inputs_of_more_than_256_mb_fail_their_task_before_any_handler(
    own: LeaseDatabase,
) -> None:
    db = own
    flow = joined_steps(db)
    (run,) = ready_to_join(db, flow)
    db.do("create table large as select to_jsonb(repeat('x', 140000000)) as value")
    output = "(select large.value from large)"
    query = (
        f"update pgflow.step_states set output = {output} where run_id = %s and step_slug <> 'j'"
    )
    db.do(query, run)
    innocent = db.start(flow)

    claimed = db.claim(flow, db.worker(flow))

    assert {task.run_id for task in claimed} == {innocent}
    assert (db.status(run), db.task(run, "j").status) == ("failed", "failed")
    (attempt,) = [each for each in db.attempts(run) if each.step_slug == "j"]
    assert attempt.outcome == "failed"
    assert attempt.error_message.startswith("the task could not be started: ")
    assert attempt.error_message.endswith(" (54000)")
    assert "the input of step j would be larger than 256 MB" in attempt.error_message
    assert db.claim(flow, db.worker(flow)) == []


@covers("database 1")
def test_one_culprit_of_many_is_found_and_its_attempt_spent(own: LeaseDatabase) -> None:
    flow = joined_steps(own, max_attempts=2, base_delay=30)
    runs = ready_to_join(own, flow, 20)
    poison(own, runs[7])

    claimed = own.claim(flow, own.worker(flow), 20)

    assert {task.run_id for task in claimed} == set(runs) - {runs[7]}
    task = own.task(runs[7], "j")
    assert (task.status, task.attempts_count) == ("queued", 1)
    assert own.outcomes(runs[7], "j") == ["failed"]
    assert not own.queue(flow)[task.message_id].visible
    delay = "select vt - now() > '50 s' from pgmq.q_{} where msg_id = %s"
    assert own.value(delay.format(flow), task.message_id)


@covers("database 1")
def test_the_last_attempt_that_cannot_be_started_ends_the_run(db: LeaseDatabase) -> None:
    flow = joined_steps(db, max_attempts=2, base_delay=30)
    (run,) = ready_to_join(db, flow)
    poison(db, run)

    assert db.claim(flow, db.worker(flow)) == []
    assert db.status(run) == "started"
    db.do(f"update pgmq.q_{flow} set vt = now()")
    assert db.claim(flow, db.worker(flow)) == []

    assert db.status(run) == "failed"
    assert db.task(run, "j").error_message == "the task could not be started: no input (P0001)"
    assert db.outcomes(run, "j") == db.kept("failed", "failed")
    assert db.queue(flow) == {}


@covers("database 1")
@pytest.mark.parametrize("state", ["57014", "42501", "25006", "40001", "53100", "23503"])
def test_what_is_not_a_matter_of_one_task_is_raised(own: LeaseDatabase, state: str) -> None:
    flow = joined_steps(own)
    (run,) = ready_to_join(own, flow)
    poison(own, run, state)

    with pytest.raises(psycopg.Error, match="no input") as raised:
        own.claim(flow, own.worker(flow))

    assert raised.value.sqlstate == state
    assert own.task(run, "j").attempts_count == 0
    assert own.outcomes(run, "j") == []


@covers("database 1")
@pytest.mark.parametrize("state", ["P0001", "22012"])
def test_a_culprit_whose_run_is_locked_is_left_for_later(own: LeaseDatabase, state: str) -> None:
    flow = joined_steps(own)
    guilty, innocent = ready_to_join(own, flow, 2)
    poison(own, guilty, state)
    holder = own.connect()

    with holder.transaction():
        holder.execute("select from pgflow.runs where run_id = %s for update", (guilty,))
        own.do("set statement_timeout = '5s'")
        claimed = own.claim(flow, own.worker(flow))

    assert [task.run_id for task in claimed] == [innocent]
    task = own.task(guilty, "j")
    assert (task.status, task.attempts_count) == ("queued", 0)
    soon = f"select vt - now() < '2 s' from pgmq.q_{flow} where msg_id = %s"
    assert own.value(soon, task.message_id)


@covers("database 1")
def test_the_claim_of_other_runtimes_finds_its_culprit_too(own: LeaseDatabase) -> None:
    flow = joined_steps(own)
    runs = ready_to_join(own, flow, 3)
    poison(own, runs[1], "22012")

    claimed = own.upstream_claim(flow, own.worker(flow))

    assert {task.run_id for task in claimed} == {runs[0], runs[2]}
    assert own.status(runs[1]) == "failed"
    assert own.task(runs[1], "j").error_message.endswith("no input (22012)")


@covers("database 1")
def test_a_claim_of_tasks_that_start_never_looks_for_a_culprit(db: LeaseDatabase) -> None:
    flow = db.flow("m*")
    db.start(flow, list(range(6)))
    db.do("drop function pgflowd._start_each")

    assert len(db.claim(flow, db.worker(flow))) == 6


@covers("database 1")
def test_a_notice_says_which_task_could_not_be_started(own: LeaseDatabase) -> None:
    flow = joined_steps(own)
    (run,) = ready_to_join(own, flow)
    poison(own, run, "54000")
    notices: list[tuple[str | None, str | None]] = []
    own.conn.add_notice_handler(
        lambda notice: notices.append((notice.sqlstate, notice.message_detail))
    )

    own.claim(flow, own.worker(flow))

    ((state, detail),) = notices
    assert state == "PF012"
    assert json.loads(detail or "") == {
        "run": str(run),
        "step": "j",
        "task_index": 0,
        "token": own.value("select max(token) from pgflowd.attempts"),
        "attempt": 1,
        "max_attempts": 3,
        "error": "the task could not be started: no input (54000)",
        "verdict": "failed",
        "run_status": "failed",
    }


@covers("outside 1")
def test_a_message_whose_id_the_archive_has_already_stops_nothing(own: LeaseDatabase) -> None:
    """As after a logical migration that left the sequences behind."""
    db = own
    flow = db.flow("a", "b")
    db.start(flow)
    send = "select pgmq.send(%s, '{}')"
    known, unknown = db.value(send, flow), db.value(send, flow)
    db.do(f"insert into pgmq.a_{flow} (msg_id, vt, message) values (%s, now(), '{{}}')", known)

    claimed = db.claim(flow, db.worker(flow))

    assert len(claimed) == 2
    assert known not in db.queue(flow) and unknown not in db.queue(flow)


@covers("outside 1")
def test_a_task_whose_message_id_the_archive_has_already_is_reported(own: LeaseDatabase) -> None:
    flow = own.flow("a", "b")
    run = own.start(flow)
    tasks = own.claim(flow, own.worker(flow))
    insert = f"insert into pgmq.a_{flow} (msg_id, vt, message) values (%s, now(), '{{}}')"
    own.do(insert, tasks[0].msg_id)

    assert [own.complete(task) for task in tasks] == ["completed"] * 2

    assert own.status(run) == "completed"
    assert own.queue(flow) == {}
