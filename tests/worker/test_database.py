"""A worker whose database is slow, away, or wrong (docs/background/failures.md, A, E and G)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from support.covers import covers

from pgflowd.core.messages import Failed, Heartbeat, QuickStop, Ready, Waiting
from pgflowd.testing.until import until

MODULE = """
    import os, time, pathlib
    from support.oracle import note
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout={timeout})

    @flow.step
    def work(run, ctx):
        note(ctx, "start")
        if "begun" in run:
            with open(run["begun"], "a") as file: file.write(f"{{ctx.token}}\\n")
        while "until" in run and not os.path.exists(run["until"]):
            time.sleep(0.005)
        note(ctx, "end", ctx.token)
        return ctx.token

    @flow.step
    def after(work): return work
"""
FLOW = MODULE.format(timeout=20)


@covers("row 66", "rule 41")
def test_outcomes_wait_in_order_while_the_database_is_away(start_worker, proxy, tmp_path):
    worker = start_worker(FLOW, dsn=proxy.dsn)
    begun, gates = tmp_path / "begun", [tmp_path / f"gate{number}" for number in range(3)]
    runs = [worker.start_run({"begun": str(begun), "until": str(gate)}) for gate in gates]
    until(lambda: begun.exists() and len(begun.read_text().split()) == 3)
    assert len(worker.processes("work#")) == 3

    proxy.do("refuse")
    for left, gate in ((2, gates[1]), (1, gates[2]), (0, gates[0])):
        gate.touch()
        until(lambda left=left: len(worker.processes("work#")) == left)
    assert {worker.status(run) for run in runs} == {"started"}
    proxy.do("pass")

    for run in runs:
        worker.completed(run, 3 * 2)
        assert worker.outcomes(run) == ["completed"] * 2
    logged = [each["run"] for each in worker.records("task.completed") if each["step"] == "work"]
    assert logged == [runs[1], runs[2], runs[0]]


@covers("row 68")
def test_all_sessions_terminated_many_times_and_nothing_is_lost(start_worker):
    worker = start_worker(FLOW)
    others = """
        select pg_terminate_backend(pid) from pg_stat_activity
         where datname = current_database() and pid <> pg_backend_pid()
    """

    for _ in range(10):
        run = worker.start_run()
        worker.conn.execute(others)
        worker.completed(run, 5)

    assert not worker.child.has_ended()


@covers("row 70")
def test_a_half_open_line_is_cut_by_our_own_limit(start_worker, proxy, tmp_path):
    worker = start_worker(FLOW, dsn=proxy.dsn)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "until": str(gate)})
    until(begun.exists)

    proxy.do("hold")
    gate.touch()
    until(lambda: worker.records("worker.error"), 10)
    proxy.do("cut")

    worker.completed(run, 5)
    assert worker.outcomes(run) == ["completed"] * 2


@covers("row 70")
def test_a_deadline_holds_while_the_database_hangs(start_worker, proxy, tmp_path):
    worker = start_worker(MODULE.format(timeout=1), dsn=proxy.dsn)
    begun = tmp_path / "begun"
    worker.start_run({"begun": str(begun), "until": "/nowhere"})
    until(begun.exists)

    proxy.do("hold")

    until(lambda: not worker.runners, 1 + 0.5 + 1)


@covers("row 5")
def test_a_report_without_an_answer_is_sent_again_and_answered_repeated(
    start_worker, proxy, tmp_path
):
    worker = start_worker(FLOW, dsn=proxy.dsn)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "until": str(gate)})
    until(begun.exists)

    proxy.do("mute")
    gate.touch()
    until(lambda: "completed" in worker.outcomes(run))
    proxy.do("cut")

    worker.completed(run, 5)
    assert len(begun.read_text().split()) == 1
    verdicts = [record["verdict"] for record in worker.records("task.completed")]
    assert "repeated" in verdicts


@covers("row 74")
def test_a_locked_table_delays_reports_but_not_heartbeats(start_worker, tmp_path):
    worker = start_worker(FLOW)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "until": str(gate)})
    until(begun.exists)
    renewed_at = worker.value("select last_heartbeat_at from pgflow.workers")

    with worker.conn.transaction():
        worker.conn.execute("lock pgflow.runs in exclusive mode")
        gate.touch()
        until(worker.waits_for_a_lock)
        query = "select last_heartbeat_at > %s from pgflow.workers"
        other = psycopg.connect(worker.conn.info.dsn, autocommit=True)
        until(lambda: other.execute(query, (renewed_at,)).fetchone() == (True,), 3)
        other.close()

    worker.completed(run, 8)
    assert worker.outcomes(run) == ["completed"] * 2


REFUSING_TRIGGER = """
    create function refuse() returns trigger language plpgsql as $$
    begin
      {what}
      return new;
    end $$;
    create sequence tries;
    create trigger refuse before update on pgflow.step_tasks for each row
      when (new.status = 'completed') execute function refuse();
"""


@covers("row 76", "row 77", "row 78", "row 79")
@pytest.mark.parametrize("state", ["40001", "40P01", "53200", "58030", "XX000", "57014"])
def test_a_report_that_failed_is_sent_again(start_worker, state):
    """77 and 79."""
    worker = start_worker(FLOW)
    no = f"raise exception 'no' using errcode = '{state}'"
    what = f"if nextval('public.tries') <= 2 then {no}; end if;"
    worker.conn.execute(REFUSING_TRIGGER.format(what=what))

    run = worker.start_run()

    worker.completed(run, 10)
    assert worker.outcomes(run) == ["completed"] * 2


def test_an_output_that_the_database_refuses_fails_its_own_task(start_worker):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1)

        @flow.step
        def work(run): return 1e400 if run.get("huge") else 1
    """
    worker = start_worker(module)
    what = "raise exception 'too large' using errcode = '54000';"
    worker.conn.execute(REFUSING_TRIGGER.format(what=what))

    run = worker.start_run()
    assert worker.failed(run, 5)

    assert "the database refused the report: too large (54000)" in worker.attempts(run)[0][2]


@covers("database 19", "database 28", "outside 7", "outside 19")
def test_a_database_with_other_defaults_records_failures_and_outcomes(start_worker, database):
    others = {
        "default_transaction_isolation": "serializable",
        "array_nulls": "off",
        "standard_conforming_strings": "off",
        "datestyle": "German",
        "intervalstyle": "iso_8601",
    }
    with database.connect() as conn:
        for name, value in others.items():
            change = psycopg.sql.SQL("alter database {} set {} = {}").format(
                psycopg.sql.Identifier(database.name), psycopg.sql.SQL(name), value
            )
            conn.execute(change)
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=2, base_delay=0)

        @flow.step
        def work(run, ctx):
            if ctx.attempt == 1: raise ValueError("no")
            return None
    """
    worker = start_worker(module)

    run = worker.start_run()

    worker.completed(run, 5)
    assert worker.outcomes(run) == ["failed", "completed"]


@covers("row 81", "rule 24")
def test_an_empty_database_is_reported_with_the_command(start_worker, empty_database):
    worker = start_worker(FLOW, dsn=empty_database.dsn, ready=False)

    assert worker.ended() == 78
    assert worker.received(Failed).code == "E302"
    assert "pgflowd db migrate" in worker.received(Failed).text


@covers("row 65")
def test_a_database_that_is_not_up_yet_is_waited_for(start_worker, proxy):
    proxy.do("refuse")
    worker = start_worker(FLOW, dsn=proxy.dsn, ready=False)
    until(lambda: worker.received(Waiting))

    proxy.do("pass")

    until(lambda: worker.received(Ready), 5)
    worker.completed(worker.start_run(), 3)


@covers("P14", "rule 2")
@pytest.mark.parametrize("mode", ["refuse", "hold"])
def test_a_stop_is_obeyed_while_the_database_cannot_be_reached(start_worker, proxy, mode):
    proxy.do(mode)
    worker = start_worker(FLOW, dsn=proxy.dsn, ready=False)
    if mode == "refuse":
        until(lambda: worker.received(Waiting))
    else:
        until(lambda: worker.processes("zygote"))

    worker.send(QuickStop())

    assert worker.ended(within_s=0.5 + 2) == 0


@covers("row 26")
def test_a_quick_stop_is_in_time_while_the_database_hangs(start_worker, proxy, tmp_path):
    worker = start_worker(FLOW, dsn=proxy.dsn)
    begun = tmp_path / "begun"
    worker.start_run({"begun": str(begun), "until": "/nowhere"})
    until(begun.exists)
    proxy.do("hold")

    worker.send(QuickStop())

    assert worker.ended(within_s=0.5 + 5) == 1
    [logged] = worker.records("worker.error")
    assert logged["count"] == 1
    assert "run again" in logged["error"]


@covers("row 85")
def test_the_task_of_a_deleted_run_is_killed_at_the_next_heartbeat(start_worker, tmp_path):
    worker = start_worker(FLOW)
    begun = tmp_path / "begun"
    run = worker.start_run({"begun": str(begun), "until": "/nowhere"})
    until(begun.exists)

    for table in ("step_tasks", "step_states", "runs"):
        worker.conn.execute(f"delete from pgflow.{table} where run_id = %s", (run,))

    until(lambda: not worker.processes("#"), 3)
    until(lambda: any(r.get("code") == "E407" for r in worker.records("worker.error")))
    assert worker.completed(worker.start_run())
    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0, 5)


@covers("rule 37")
def test_a_cancelled_run_ends_its_handlers(start_worker, tmp_path):
    worker = start_worker(FLOW)
    begun = tmp_path / "begun"
    run = worker.start_run({"begun": str(begun), "until": "/nowhere"})
    until(begun.exists)

    worker.conn.execute("select pgflowd.cancel(%s, 'wrong', 'me')", (run,))

    until(lambda: not worker.processes("#"), 3)
    until(lambda: worker.outcomes(run) == ["late"])


@covers("row 13")
def test_a_report_after_a_take_over_is_dropped(start_worker, tmp_path):
    worker = start_worker(FLOW)
    worker.was_frozen = True
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run({"begun": str(begun), "until": str(gate)})
    until(begun.exists)
    frozen = [worker.pid, *worker.runners]

    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: worker.value("select pgflowd.recover_stalled('2 s')"), 5)
    gate.touch()
    other = start_worker(FLOW)
    other.completed(run, 5)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)

    until(lambda: any(r.get("code") == "E407" for r in worker.records("worker.error")), 5)
    assert worker.outcomes(run) == ["stalled", "completed", "completed"]
    older, newer = (int(token) for token in begun.read_text().split())
    output = "select output from pgflow.step_tasks where run_id = %s and step_slug = 'work'"
    assert older < newer == worker.value(output, run)
    assert worker.completed(worker.start_run())


@covers("row 93")
@pytest.mark.parametrize(
    "message",
    [
        *("{}", "null", '"text"', '{"run_id": "x"}', '{"x": [1]}', f'"{"x" * 10_000_000}"'),
        f'{{"flow_slug": "flow", "run_id": "{uuid4()}", "step_slug": "work", "task_index": 0}}',
    ],
    ids=["empty", "null", "text", "no run", "list", "huge", "unknown run"],
)
def test_a_foreign_message_goes_and_work_flows(start_worker, message):
    worker = start_worker(FLOW)
    worker.conn.execute("select pgmq.send('flow', %s::jsonb)", (message,))

    worker.completed(worker.start_run(), 5)

    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0, 5)
    assert worker.value("select count(*) from pgmq.a_flow where msg_id = 1") == 1


@covers("row 93")
def test_foreign_messages_are_reported_once_in_a_while(start_worker):
    worker = start_worker(FLOW)

    for _ in range(5):
        worker.conn.execute("select pgmq.send('flow', '{}')")
        assert worker.completed(worker.start_run())
    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0, 5)

    [logged] = worker.records("worker.strangers")
    assert logged["level"] == "warning"
    assert logged["error"] == "1 messages that belong to no open task were archived"


@covers("row 97")
def test_another_shape_in_the_database_is_reported_and_nothing_is_deleted(start_worker):
    first = start_worker(FLOW)
    first.completed(first.start_run())

    second = start_worker(FLOW + "\n    @flow.step\n    def more(work): pass\n", ready=False)

    assert second.ended() == 78
    assert second.received(Failed).code == "E306"
    assert "+ step more, after work" in second.received(Failed).text
    assert first.value("select count(*) from pgflow.runs") == 1


@covers("P24")
def test_a_changed_option_counts_and_the_log_says_so(start_worker):
    first = start_worker(FLOW)
    assert first.drain() == 0

    second = start_worker(MODULE.format(timeout=7))

    assert second.records("worker.warning") == []
    [changed] = second.records("flow.changed")
    assert changed["text"] == "timeout 20 → 7"
    assert second.value("select opt_timeout from pgflow.flows") == 7


def test_verify_creates_nothing(start_worker):
    worker = start_worker(FLOW, definitions="verify", ready=False)

    assert worker.ended() == 78
    assert worker.received(Failed).code == "E308"


def test_recreate_deletes_a_changed_flow_with_its_runs(start_worker):
    first = start_worker(FLOW)
    first.completed(first.start_run())
    first.drain()

    more = FLOW + "\n    @flow.step\n    def more(work): pass\n"
    second = start_worker(more, definitions="recreate")

    assert second.value("select count(*) from pgflow.runs") == 0
    assert second.completed(second.start_run())


@covers("row 98", "E406")
def test_a_step_that_the_code_does_not_know_is_given_back(start_worker):
    worker = start_worker(FLOW)
    worker.conn.execute("select pgflow.add_step('flow', 'unknown')")

    run = worker.start_run()

    until(lambda: "released" in worker.outcomes(run), 5)
    assert any(record.get("code") == "E406" for record in worker.records("worker.error"))
    query = "select vt > now() + interval '20 s' from pgmq.q_flow"
    until(lambda: True in worker.column(query))


@covers("row 92")
def test_a_delayed_retry_is_on_time_without_a_notification(start_worker):
    module = """
        from pgflowd import Flow, RetryAfter
        flow = Flow("flow", max_attempts=2)

        @flow.step
        def work(run, ctx):
            if ctx.attempt == 1: raise RetryAfter(1)
    """
    worker = start_worker(module)

    run = worker.start_run()
    worker.completed(run, 3)

    query = "select max(started_at) - min(ended_at) < '1.5 s' from pgflowd.attempts"
    assert worker.value(query)


@covers("row 6")
def test_a_worker_killed_in_a_batch_loses_nothing_reported(start_worker):
    module = """
        import os, signal
        from pgflowd import Flow
        flow = Flow("flow", base_delay=0, timeout=20)

        @flow.map
        def work(item, ctx):
            if item == 3 and ctx.attempt == 1 and not os.path.exists("{gate}"):
                open("{gate}", "w").close()
                os.kill(os.getsid(0), signal.SIGKILL)
            return item
    """
    gate = f"/tmp/pgflowd-kill-{os.getpid()}"
    Path(gate).unlink(missing_ok=True)
    worker = start_worker(module.format(gate=gate), max_concurrency=2)
    run = worker.start_run(list(range(10)))
    assert worker.ended() == -9
    worker.conn.execute("select pgflowd.crashed(%s, 'killed')", (worker.worker_id,))

    other = start_worker(module.format(gate=gate))
    other.completed(run, 5)

    assert other.output(run) == {"work": list(range(10))}
    assert other.outcomes(run).count("completed") == 10


def test_a_role_that_may_create_restores_a_missing_trigger(start_worker):
    start_worker(FLOW).drain()
    worker = start_worker(FLOW)
    worker.conn.execute("drop trigger pgflowd_notify on pgmq.q_flow")
    worker.drain()

    second = start_worker(FLOW)

    query = "select count(*) from pg_trigger where tgname = 'pgflowd_notify'"
    assert second.value(query) == 1


def test_w311_without_a_trigger_and_with_verify_a_worker_polls(start_worker):
    first = start_worker(FLOW)
    first.conn.execute("drop trigger pgflowd_notify on pgmq.q_flow")
    first.drain()

    worker = start_worker(FLOW, definitions="verify")
    run = worker.start("flow")

    assert worker.completed(run, 8)
    assert [record["code"] for record in worker.records("worker.warning")] == ["W311"]
    until(lambda: worker.received(Heartbeat))
    assert worker.received(Heartbeat).numbers["problems"][0]["code"] == "W311"


def test_polling_needs_no_wake(start_worker):
    worker = start_worker(FLOW, signal_strategy="polling")

    assert worker.completed(worker.start("flow"), 8)


@covers("database 1", "outside 1")
def test_a_task_that_cannot_be_started_fails_and_the_worker_says_so(start_worker):
    worker = start_worker(FLOW)
    worker.conn.execute("""
        create or replace function pgflow._deps_output(flow_slug text, run_id uuid, step_slug text)
        returns jsonb language plpgsql as $$
        begin raise exception 'too large' using errcode = '54000'; end $$
    """)

    run = worker.start_run()
    assert worker.failed(run, 5)

    text = "the task could not be started: too large (54000)"
    assert [each[1:] for each in worker.attempts(run)] == [("completed", None), ("failed", text)]
    failed = until(lambda: worker.records("task.failed"))[0]
    assert failed["error"] == f"{text} (attempt 1 of 3); it is not retried"
    assert until(lambda: worker.records("run.failed"))[0]["error"] == text


@covers("database 2")
def test_a_run_whose_output_no_jsonb_holds_fails_and_the_worker_says_so(start_worker):
    worker = start_worker(FLOW)
    worker.conn.execute("""
        create or replace function pgflow._is_large(output jsonb)
        returns boolean language sql stable as 'select true';
        create or replace function pgflow._join_outputs(run_id uuid, step_slugs text[])
        returns jsonb language sql stable as
          'select case when step_slugs <> ''{after}'' then ''{"work": 1}''::jsonb end'
    """)

    run = worker.start_run()
    assert worker.failed(run, 5)

    error = until(lambda: worker.records("run.failed"))[0]["error"]
    assert error.startswith("the output of the run would be larger than 256 MB")
    assert set(worker.outcomes(run)) == {"completed"}
