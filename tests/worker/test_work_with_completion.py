"""What a handler writes over `ctx.conn()` is committed with the completion, or not at all."""

from __future__ import annotations

import os
import signal

import pytest
from support.covers import covers
from support.worker import is_gone, one_step

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

WRITE = 'ctx.conn().execute("insert into work values (%s, %s)", (ctx.attempt, ctx.task_index))\n'
AT_GATE = """
    select pid from pg_locks
     where locktype = 'advisory' and not granted and database = (
       select oid from pg_database where datname = current_database())
"""


@pytest.fixture
def table(database):
    """A table for what handlers write, and whose commits wait for the gate."""
    conn = database.connect()
    conn.execute("create table work (attempt int, task_index int)")
    conn.execute("""
        create function wait_for_gate() returns trigger language plpgsql as $$
        begin perform pg_advisory_xact_lock_shared(7); return null; end $$""")
    conn.execute("""
        create constraint trigger gate after insert on work deferrable initially deferred
        for each row execute function wait_for_gate()""")
    yield conn
    conn.close()


def handler(body: str, attempts: int = 2, timeout: int = 10) -> str:
    lines = body.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return one_step(WRITE + "\n".join(line[indent:] for line in lines), attempts, timeout)


def written(worker) -> list[int]:
    return worker.column("select attempt from work order by 1")


def details(worker, run):
    query = """
        select outcome, error_type, error_message, output is not null as has_output
          from pgflowd.attempts where run_id = %s and step_slug = 'work' order by token
    """
    return worker.rows(query, run)


def warnings(worker) -> list[str]:
    return [each["error"] for each in worker.records() if each["level"] in ("warning", "error")]


def waits_at_gate(worker) -> bool:
    return worker.value(f"select exists ({AT_GATE})")


# together


@covers("G12")
def test_work_and_completion_are_one_transaction(start_worker, table):
    table.execute("create table completions (transaction xid8)")
    table.execute("""
        create function note_completion() returns trigger language plpgsql as $$
        begin insert into public.completions values (pg_current_xact_id()); return null; end $$""")
    table.execute("""
        create trigger note_completion after update of output on pgflow.step_tasks
        for each statement execute function note_completion()""")
    worker = start_worker(handler("return ctx.token"))

    run = worker.start_run()

    assert worker.completed(run)
    first = worker.value("select min(transaction::text::bigint) from completions")
    assert worker.value("select xmin::text::bigint from work") == first
    assert worker.outcomes(run) == ["completed"] * 2
    assert worker.output(run) == {"after": worker.value("select min(token) from pgflowd.attempts")}
    used = worker.row("select cpu_s, peak_kb from pgflowd.attempts where step_slug = 'work'")
    assert used.cpu_s > 0 and used.peak_kb > 1000
    [record] = [each for each in worker.records("task.completed") if each["step"] == "work"]
    assert record["verdict"] == "completed"
    assert [each["run"] for each in worker.records("run.completed")] == [run]
    assert [each["step"] for each in worker.records("step.completed")] == ["work", "after"]
    assert warnings(worker) == []


@pytest.mark.own_session
@pytest.mark.parametrize("style", ["ISO, MDY", "SQL, DMY"])
def test_the_task_ends_when_its_handler_does_and_not_when_that_began_to_write(
    start_worker, table, style
):
    body = f"""
        ctx.conn().execute("set datestyle = '{style}'")
        ctx.conn().execute("set timezone = 'Asia/Kolkata'")
        ctx.conn().execute("select pg_sleep(0.3)")
    """
    worker = start_worker(handler(body))

    run = worker.start_run()

    assert worker.completed(run)
    moments = """
        select completed_at - started_at from pgflow.step_tasks where step_slug = 'work' union all
        select completed_at - started_at from pgflow.step_states where step_slug = 'work' union all
        select ended_at - started_at from pgflowd.attempts where step_slug = 'work' union all
        select later.queued_at - task.started_at from pgflow.step_tasks as task
          join pgflow.step_tasks as later on later.step_slug = 'after' where task.step_slug = 'work'
    """
    assert all(0.3 <= took.total_seconds() < 5 for took in worker.column(moments))
    [step] = [each for each in worker.records("step.completed") if each["step"] == "work"]
    assert step["took_s"] >= 0.3
    assert [each["step"] for each in worker.records("step.started")] == ["work", "after"]


def test_an_output_of_any_size_goes_with_the_work(start_worker, table):
    worker = start_worker(handler("return 'x' * 3_000_000"))

    run = worker.start_run()

    assert len(worker.output(run)["after"]) == 3_000_000
    assert written(worker) == [1]
    assert worker.outcomes(run) == ["completed"] * 2


def test_work_is_undone_with_what_cannot_be_an_output(start_worker, table):
    worker = start_worker(handler("return {1} if ctx.attempt == 2 else 'x' * (17 << 20)"))

    assert worker.failed(worker.start_run())

    assert written(worker) == []


@covers("G12")
@pytest.mark.parametrize("way_out", ["raise ValueError('no')", "sys.exit()", "os._exit(3)"])
def test_what_a_failed_attempt_wrote_is_undone(start_worker, table, way_out):
    worker = start_worker(handler(f"if ctx.attempt == 1: {way_out}"))

    run = worker.start_run()

    assert worker.completed(run)
    assert written(worker) == [2]


@covers("G12")
def test_what_a_handler_wrote_before_it_waits_is_undone(start_worker, table):
    worker = start_worker(handler("ctx.sleep('1h')"))

    run = worker.start_run()
    until(lambda: worker.outcomes(run) == ["suspended"])
    assert written(worker) == []
    worker.do("select pgflowd.task_wake(run_id, step_slug, 0, 'me', null) from pgflowd.waits")
    worker.send(Wake())

    assert worker.completed(run)
    assert written(worker) == [1]


def test_what_a_handler_committed_by_itself_stays(start_worker, table):
    worker = start_worker(
        handler("""
        ctx.conn().commit()
        if ctx.attempt == 1: raise ValueError("no")
    """)
    )

    assert worker.completed(worker.start_run())
    assert written(worker) == [1, 2]


@covers("G12")
def test_runs_and_signals_of_a_handler_are_part_of_its_work(start_worker, table):
    body = """
        from pgflowd import Client
        if not run:
            client = Client()
            child = client.start_flow("flow", {"child": True}, conn=ctx.conn())
            client.signal(ctx.run_id, "hello", ctx.attempt, conn=ctx.conn())
            if ctx.attempt == 1: raise ValueError("no")
    """
    worker = start_worker(handler(body))

    run = worker.start_run()

    until(lambda: worker.column("select status from pgflow.runs") == ["completed"] * 2, 10)
    assert worker.outcomes(run) == ["failed", "completed", "completed"]
    assert worker.column("select payload from pgflowd.signals") == [2]


@pytest.mark.own_session
def test_a_transaction_that_only_reads_is_left_to_the_workers_report(start_worker, table):
    table.execute("create table reporters (name text)")
    table.execute("""
        create function note_reporter() returns trigger language plpgsql as $$
        begin
          insert into public.reporters values (current_setting('application_name'));
          return null;
        end $$""")
    table.execute("""
        create trigger note_reporter after update of output on pgflow.step_tasks
        for each statement execute function note_reporter()""")
    worker = start_worker(one_step('ctx.conn().execute("table work")\nif run: ' + WRITE))

    run = worker.start_run()
    assert worker.completed(run)
    assert worker.column("select distinct name from reporters") == ["pgflowd: worker flow"]
    assert worker.completed(worker.start_run({"n": 1}))

    names = set(worker.column("select name from reporters"))
    assert names == {"pgflowd: worker flow", "pgflowd: worker flow handler"}


@covers("G6")
def test_children_of_the_handler_are_gone_before_its_work_is_committed(start_worker, table):
    body = """
        child = subprocess.Popen(["sleep", "60"])
        while open(f"/proc/{child.pid}/comm").read() != "sleep\\n":  # it begins without its name
            time.sleep(0.001)
        return child.pid
    """
    worker = start_worker(handler(body))
    table.execute("select pg_advisory_lock(7)")
    run = worker.start_run()

    until(lambda: waits_at_gate(worker))
    assert worker.processes("work#") and not worker.processes("sleep")
    table.execute("select pg_advisory_unlock(7)")

    assert is_gone(worker.output(run)["after"])
    assert written(worker) == [1]
    [warning] = warnings(worker)
    assert "child processes (sleep)" in warning


def test_steps_that_a_completion_skips_are_logged(start_worker, table):
    module = """
        from pgflowd import Flow
        flow = Flow("flow")

        @flow.step
        def work(run, ctx):
            ctx.conn().execute("insert into work values (1, 0)")
            return {"vip": False}

        @flow.step(if_={"work": {"vip": True}})
        def gift(work): return 1

        @flow.step
        def after(work): return 2
    """
    worker = start_worker(module)

    run = worker.start_run()

    assert worker.completed(run)
    assert [each["step"] for each in worker.records("step.skipped")] == ["gift"]
    assert written(worker) == [1]


@covers("G12")
@pytest.mark.own_session
def test_a_map_of_a_thousand_meets_no_deadlock(start_worker, table):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1, timeout=60)

        @flow.map
        def work(item, ctx):
            conn = ctx.conn()
            conn.execute("insert into work values (%s, %s)", (ctx.attempt, ctx.task_index))
            conn.execute("update total set n = n + 1 where bucket = %s", (item % 7,))
            return item
    """
    table.execute("create table total (bucket int primary key, n int)")
    table.execute("insert into total select bucket, 0 from generate_series(0, 6) as bucket")
    worker = start_worker(module, max_concurrency=16)

    run = worker.start_run(list(range(1000)))

    assert worker.completed(run, 120)
    assert worker.value("select sum(n) from total") == 1000
    assert worker.value("select count(distinct task_index) from work") == 1000
    assert set(worker.outcomes(run)) == {"completed"} and len(worker.outcomes(run)) == 1000
    deadlocks = "select deadlocks from pg_stat_database where datname = current_database()"
    assert worker.value(deadlocks) == 0


@pytest.mark.own_session
def test_rows_that_reference_their_run_hold_up_no_other_task_of_it(start_worker, table):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1, timeout=60)

        @flow.map
        def work(item, ctx):
            query = "insert into bookings values (%s, %s, %s)"
            ctx.conn().execute(query, (ctx.run_id, ctx.step_slug, ctx.task_index))
    """
    table.execute("""
        create table bookings (run_id uuid references pgflow.runs, step_slug text, task_index int,
          foreign key (run_id, step_slug, task_index) references pgflow.step_tasks)""")
    worker = start_worker(module, max_concurrency=8)

    run = worker.start_run(list(range(80)))

    assert worker.completed(run, 60)
    assert worker.outcomes(run) == ["completed"] * 80
    assert worker.value("select count(*) from bookings") == 80


# async handlers


ASYNC = """
    import asyncio
    from pgflowd import Flow
    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=20)

    @flow.map
    async def work(item, ctx):
        conn = await asyncio.to_thread(ctx.conn)
        query = "insert into work values (%s, %s)"
        if item != "nothing":
            await asyncio.to_thread(conn.execute, query, (ctx.attempt, ctx.task_index))
        if item == "fails" and ctx.attempt == 1:
            raise ValueError("no")
        return ctx.attempt
"""
SHARED = {"max_concurrency": 20, "tasks_per_runner": 20}


@covers("G12", "rule 58")
@pytest.mark.own_session
@pytest.mark.parametrize("keys", [SHARED, {"max_concurrency": 4}], ids=["shared", "own runners"])
def test_work_of_async_handlers_is_committed_with_their_completions(start_worker, table, keys):
    worker = start_worker(ASYNC, **keys)

    run = worker.start_run(["writes", "fails"] * 8 + ["nothing"])

    assert worker.output(run) == {"work": [1, 2] * 8 + [1]}
    rows = worker.rows("select attempt, task_index from work order by task_index")
    assert [tuple(row) for row in rows] == [(1 + index % 2, index) for index in range(16)]
    assert worker.value("select min(peak_kb) from pgflowd.attempts where outcome = 'completed'")


@covers("rule 58")
@pytest.mark.own_session
def test_a_commit_that_waits_holds_up_no_other_task_of_its_runner(start_worker, table):
    worker = start_worker(ASYNC, **SHARED, kill_grace_s=1.0)
    table.execute("select pg_advisory_lock(7)")
    first = worker.start_run(["writes"])
    until(lambda: waits_at_gate(worker))

    assert worker.output(worker.start_run(["nothing"])) == {"work": [1]}
    assert worker.outcomes(first) == [None]
    table.execute("select pg_advisory_unlock(7)")

    assert worker.output(first) == {"work": [1]}
    assert len(worker.runners) == 1 and warnings(worker) == []


@covers("rule 59", "G12")
@pytest.mark.own_session
def test_a_shared_task_whose_time_is_up_in_its_commit_is_rolled_back(start_worker, table):
    worker = start_worker(ASYNC.replace("timeout=20", "timeout=1"), **SHARED)
    table.execute("select pg_advisory_lock(7)")
    run = worker.start_run(["writes"])

    until(lambda: "timed_out" in worker.outcomes(run))
    table.execute("select pg_advisory_unlock(7)")

    assert worker.output(run) == {"work": [2]}
    assert written(worker) == [2]


# how a handler may leave its connection


@pytest.mark.own_session
@pytest.mark.parametrize(
    "left",
    [
        'ctx.conn().execute("set statement_timeout = 1")',
        'ctx.conn().execute("set lock_timeout = 1")',
        'ctx.conn().execute("set search_path = nowhere")',
        'ctx.conn().execute("set local role pg_read_all_data")',
        'ctx.conn().execute("set role pg_read_all_data")',
        'ctx.conn().execute("set client_encoding = latin1")',
        'ctx.conn().execute("set session_replication_role = replica")',
        "ctx.conn().row_factory = psycopg.rows.dict_row",
        "ctx.conn().cursor_factory = psycopg.ClientCursor",
        'ctx.conn().cursor("named").execute("select generate_series(1, 10)")',
        'ctx.conn().execute("listen something")',
        'ctx.conn().execute("declare one cursor with hold for select 1")',
        'ctx.conn().cursor().executemany("select %s", [(1,), (2,)])',
    ],
)
def test_a_session_that_was_changed_commits_with_the_completion(start_worker, table, left):
    worker = start_worker(handler(f"import psycopg\n{left}\nreturn 'é\\u2028'", attempts=1))

    run = worker.start_run()

    assert worker.output(run) == {"after": "é\u2028"}
    assert written(worker) == [1]
    assert warnings(worker) == []


@covers("E431")
@pytest.mark.parametrize(
    ("left", "text"),
    [
        ("try: ctx.conn().execute('select 1/0')\nexcept Exception: pass", "statement of the tra"),
        ("here.append(ctx.conn().pipeline()); here[-1].__enter__()", "a pipeline is open"),
        ("here.append(ctx.conn().transaction()); here[-1].__enter__()", "transaction() block"),
        (
            "here.append(ctx.conn().cursor().copy('copy work from stdin')); here[-1].__enter__()",
            "a statement is under way",
        ),
        (
            "here.append(ctx.conn().cursor().stream('select generate_series(1, 100000)'))\n"
            "next(here[-1])",
            "a statement is under way",
        ),
        (
            "try: ctx.conn().execute('select pg_terminate_backend(pg_backend_pid())')\n"
            "except Exception: pass",
            "the connection was lost",
        ),
    ],
)
def test_what_cannot_be_committed_fails_the_attempt(start_worker, table, left, text):
    worker = start_worker(
        handler(f"here = ctx.__dict__.setdefault('here', [])\n{left}", attempts=1)
    )

    run = worker.start_run()

    assert worker.failed(run)
    [(_, outcome, error)] = worker.attempts(run)
    assert (outcome, error[:4]) == ("failed", "E431")
    assert text in error
    assert written(worker) == []


@pytest.mark.parametrize(
    ("left", "rows"),
    [
        ("ctx.conn().close()", []),
        ("with ctx.conn(): pass", [1]),
        ("ctx.conn().rollback()", []),
        ("ctx.conn().commit(); ctx.conn().autocommit = True\n" + WRITE, [1, 1]),
        ("ctx.conn().commit(); ctx.conn().read_only = True; ctx.conn().execute('select 1')", [1]),
    ],
)
def test_where_nothing_is_left_to_commit_the_task_is_reported(start_worker, table, left, rows):
    worker = start_worker(handler(left, attempts=1))

    run = worker.start_run()

    assert worker.completed(run)
    assert written(worker) == rows


def test_a_transaction_begun_by_hand_in_autocommit_is_committed_too(start_worker, table):
    body = "ctx.conn().autocommit = True\nctx.conn().execute('begin')\n"
    worker = start_worker(one_step(body + WRITE))

    assert worker.completed(worker.start_run())
    assert written(worker) == [1]


def test_work_in_another_database_is_committed_and_the_task_reported(
    start_worker, database, empty_database, tmp_path
):
    url = tmp_path / "url"
    url.write_text(database.dsn)
    url.chmod(0o600)
    other = empty_database.connect()
    other.execute("create table work (attempt int, task_index int)")
    worker = start_worker(handler("return 1"), dsn=f"file:{url}")
    url.write_text(empty_database.dsn)

    run = worker.start_run()

    assert worker.completed(run)
    assert other.execute("select attempt from work").fetchall() == [(1,)]


# what the database answers


def test_a_type_violation_fails_the_run_and_undoes_the_work(start_worker, table):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=3, base_delay=0)

        @flow.step
        def work(run, ctx):
            ctx.conn().execute("insert into work values (1, 1)")
            return "no list"

        @flow.map(over="work")
        def after(item): return item
    """
    worker = start_worker(module)

    run = worker.start_run()

    assert worker.failed(run)
    [(_, outcome, error)] = worker.attempts(run)
    assert outcome == "failed" and "TYPE_VIOLATION" in error
    assert written(worker) == []


@covers("G12")
def test_work_of_a_run_that_was_cancelled_meanwhile_is_undone(start_worker, table):
    body = """
        from pgflowd import Client
        Client().cancel(ctx.run_id)
        return "late"
    """
    worker = start_worker(handler(body), heartbeat_interval_s=60.0)

    run = worker.start_run()

    until(lambda: worker.outcomes(run) not in ([], [None]))
    [attempt] = details(worker, run)
    assert (attempt.outcome, attempt.has_output) == ("late", False)
    assert "rolled back" in attempt.error_message
    assert written(worker) == []


@covers("G12", "G4")
def test_work_of_a_lost_lease_is_undone_and_the_log_says_so(start_worker, table, tmp_path):
    body = f"""
        if not os.path.exists("{tmp_path}/again"):
            os.mkdir("{tmp_path}/again")
            import psycopg
            with psycopg.connect(ctx.database(), autocommit=True) as other:
                other.execute("select pgflowd.release(%s, %s, 0, %s)",
                              (ctx.run_id, ctx.step_slug, ctx.token))
    """
    worker = start_worker(handler(body))

    run = worker.start_run()

    assert worker.completed(run)
    assert worker.outcomes(run) == ["released", "completed", "completed"]
    assert len(written(worker)) == 1
    [lost] = [each for each in worker.records("worker.error") if each.get("code") == "E407"]
    assert lost["run"] == run


def test_a_handler_that_completes_its_task_by_itself_is_believed(start_worker, table):
    body = """
        ctx.conn().execute("select pgflowd.complete(%s, %s, 0, %s, '5')",
                           (ctx.run_id, ctx.step_slug, ctx.token))
        return 6
    """
    worker = start_worker(handler(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": 5}
    assert written(worker) == [1]


@pytest.mark.parametrize("level", ["REPEATABLE_READ", "SERIALIZABLE"])
def test_a_conflict_of_snapshots_fails_the_attempt_and_the_next_one_repeats_it(
    start_worker, table, level
):
    module = f"""
        import psycopg
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=2, base_delay=0)

        @flow.step
        def work(run, ctx):
            conn = ctx.conn()
            conn.isolation_level = psycopg.IsolationLevel.{level}
            conn.execute("insert into work values (%s, 0)", (ctx.attempt,))
            if ctx.attempt == 1:
                with psycopg.connect(ctx.database(), autocommit=True) as other:
                    other.execute("update pgflow.runs set remaining_steps = remaining_steps")
    """
    worker = start_worker(module, heartbeat_interval_s=60.0)  # a renewal is a conflict, too

    run = worker.start_run()

    assert worker.completed(run)
    first, second = details(worker, run)
    assert (first.outcome, first.error_message[:4], second.outcome) == (
        "failed",
        "E431",
        "completed",
    )
    assert written(worker) == [2]


@pytest.mark.own_session
def test_a_deadlock_at_the_completion_costs_no_attempt(start_worker, table, tmp_path):
    body = f"""
        if not os.path.exists("{tmp_path}/again"):
            os.mkdir("{tmp_path}/again")
            ctx.conn().execute("select pg_advisory_xact_lock(9)")
            ctx.conn().execute("set deadlock_timeout = '10ms'")
            ctx.conn().execute("select pg_advisory_lock_shared(8)")
    """
    worker = start_worker(handler(body, attempts=1))
    table.execute("select pg_advisory_lock(8)")
    with table.transaction():
        table.execute("set local deadlock_timeout = '1min'")
        run = worker.start_run()
        until(lambda: waits_at_gate(worker))
        table.execute("select from pgflow.runs for update")
        table.execute("select pg_advisory_unlock(8)")
        table.execute("select pg_advisory_xact_lock(9)")

    assert worker.completed(run)
    first, second = details(worker, run)
    assert (first.outcome, second.outcome) == ("released", "completed")
    assert "deadlock" in first.error_message
    assert written(worker) == [1]


@pytest.mark.own_session
def test_a_run_that_is_locked_is_waited_for(start_worker, table):
    worker = start_worker(handler("return 1", attempts=1, timeout=3))

    def asked_at():
        query = """
            select max(query_start) from pg_stat_activity
             where wait_event_type = 'Lock' and application_name like '% handler'
        """
        return worker.value(query)

    run = worker.start("flow")
    with table.transaction():
        table.execute("select from pgflow.runs for update")
        worker.send(Wake())
        first = until(asked_at)
        until(lambda: (asked_at() or first) > first)  # it asks again

    assert worker.completed(run)
    assert worker.outcomes(run) == ["completed"] * 2
    assert written(worker) == [1]


# crash points


@covers("G12")
@pytest.mark.own_session
@pytest.mark.parametrize("commits", [True, False], ids=["it commits", "it is rolled back"])
def test_a_runner_killed_in_its_commit(start_worker, table, commits):
    body = 'ctx.conn().execute("set client_connection_check_interval = 0")'
    worker = start_worker(handler(body))
    table.execute("select pg_advisory_lock(7)")
    run = worker.start_run()
    until(lambda: waits_at_gate(worker))
    [runner] = worker.processes("work#")

    os.kill(runner, signal.SIGKILL)
    until(lambda: is_gone(runner))
    if not commits:
        table.execute(f"select pg_terminate_backend(pid) from ({AT_GATE}) as waiting")
    table.execute("select pg_advisory_unlock(7)")

    assert worker.completed(run)
    of_work = [each.outcome for each in details(worker, run)]
    assert of_work == (["completed"] if commits else ["crashed", "completed"])
    assert written(worker) == [len(of_work)]
    assert not [each for each in worker.records() if each.get("code") == "E407"]


@covers("G12")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_runner_killed_around_its_commit(start_worker, table, moment):
    body = f"""
        import psycopg
        commit = psycopg.Connection.commit
        def die(conn):
            if {moment!r} == "after": commit(conn)
            os.kill(os.getpid(), 9)
        if ctx.attempt == 1: psycopg.Connection.commit = die
    """
    worker = start_worker(handler(body))

    run = worker.start_run()

    assert worker.completed(run)
    of_work = [each.outcome for each in details(worker, run)]
    assert of_work == (["completed"] if moment == "after" else ["crashed", "completed"])
    assert written(worker) == [len(of_work)]
    assert not [each for each in worker.records() if each.get("code") == "E407"]


@covers("G12")
def test_the_answer_to_a_commit_is_lost(start_worker, table, proxy):
    worker = start_worker(handler("return 1"), dsn=proxy.dsn)
    table.execute("select pg_advisory_lock(7)")
    run = worker.start_run()
    until(lambda: waits_at_gate(worker))

    proxy.do("mute")
    table.execute("select pg_advisory_unlock(7)")
    until(lambda: written(worker) == [1])
    proxy.do("cut")

    assert worker.completed(run)
    assert [each.outcome for each in details(worker, run)] == ["completed"]
    assert written(worker) == [1]
    assert not [each for each in worker.records() if each.get("code") == "E407"]


@covers("G12")
@pytest.mark.own_session
def test_a_runner_that_is_killed_at_its_timeout_while_it_waits_to_commit(start_worker, table):
    worker = start_worker(handler("return 1", timeout=1))
    table.execute("select pg_advisory_lock(7)")
    run = worker.start_run()

    until(lambda: "timed_out" in worker.outcomes(run))
    table.execute("select pg_advisory_unlock(7)")

    assert worker.completed(run)
    assert [each.outcome for each in details(worker, run)] == ["timed_out", "completed"]
    assert written(worker) == [2]
