"""prune_data_older_than, and the Elixir edition's form of it."""

import pytest
from support.covers import covers


def old(suite, run, column, days=10):
    """Let a run have ended so many days ago, by moving all its times."""
    suite.do(
        f"update pgflow.runs set started_at = now() - interval '99 days',"
        f" {column} = now() - make_interval(days => %s) where run_id = %s",
        days,
        run,
    )


@pytest.fixture
def runs(suite):
    """A run that completed, one that failed, one that is open; all 10 days ago."""
    suite.flow("f", "a", "b: a", max_attempts=1)
    done, failed, unfinished = (suite.start("f") for _ in range(3))
    suite.claim("f")
    suite.complete(done, "a", 1)
    suite.fail(failed, "a")
    suite.claim("f")
    suite.complete(done, "b", 1)
    old(suite, done, "completed_at")
    old(suite, failed, "failed_at")
    suite.do("update pgflow.runs set started_at = now() - interval '99 days'")
    return done, failed, unfinished


def prune(suite, days):
    suite.do("select pgflow.prune_data_older_than(make_interval(days => %s))", days)


def left(suite):
    return set(suite.column("select run_id from pgflow.runs"))


def test_runs_that_ended_before_the_cutoff_go_with_all_they_have(suite, runs):
    _done, _failed, unfinished = runs

    prune(suite, 5)

    assert left(suite) == {unfinished}
    for table in ("step_states", "step_tasks"):
        assert suite.column(f"select distinct run_id from pgflow.{table}") == [unfinished]
    assert suite.value("select count(*) from pgflow.flows") == 1
    assert suite.value("select count(*) from pgflow.steps") == 2


def test_runs_that_ended_later_stay(suite, runs):
    before = suite.snapshot()

    prune(suite, 20)

    assert left(suite) == set(runs)
    assert suite.snapshot() == before


def test_open_runs_stay_however_old(suite, runs):
    prune(suite, 0)

    assert runs[2] in left(suite)
    assert suite.task(runs[2], "a")["message_id"] in suite.active("f")


def test_an_interval_as_an_untyped_literal(suite, runs):
    suite.do("select pgflow.prune_data_older_than('5 days')")
    suite.do("select pgflow.prune_data_older_than(interval '5 days')")
    suite.do("select pgflow.prune_data_older_than(retention_interval => '5 days')")

    assert left(suite) == {runs[2]}


def test_active_messages_of_pruned_runs_go(suite, runs):
    done, _failed, unfinished = runs
    extra = suite.value("select pgmq.send('f', '{}')")
    suite.do("update pgflow.step_tasks set message_id = %s where run_id = %s and step_slug = 'b'",
             extra, done)  # fmt: skip

    prune(suite, 5)

    assert suite.active("f") == [suite.task(unfinished, "a")["message_id"]]


def test_null_message_ids_are_passed_over(suite, runs):
    suite.do("update pgflow.step_tasks set message_id = null")

    prune(suite, 5)

    assert left(suite) == {runs[2]}


def test_old_archive_rows_go_and_younger_ones_stay(suite, runs):
    ids = suite.archive("f")
    suite.do(
        "update pgmq.a_f set archived_at = now() - interval '10 days' where msg_id = %s", ids[0]
    )

    prune(suite, 5)

    assert suite.archive("f") == ids[1:]


def test_workers_silent_since_before_the_cutoff_go(suite):
    for days in (4, 5, 6):
        suite.do(
            "insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at)"
            " values (gen_random_uuid(), 'f', %s, now() - make_interval(days => %s))",
            str(days),
            days,
        )

    prune(suite, 5)

    assert set(suite.column("select function_name from pgflow.workers")) == {"4", "5"}


@covers("database 7", "promise 7")
def test_a_worker_that_a_task_names_goes_and_the_task_names_none(suite, runs):
    suite.do("update pgflow.workers set last_heartbeat_at = now() - interval '10 days'")
    assert suite.task(runs[2], "a")["last_worker_id"] == suite.worker("f")

    prune(suite, 5)

    assert suite.task(runs[2], "a")["last_worker_id"] is None
    assert suite.task(runs[2], "a")["status"] == "started"
    assert suite.column("select * from pgflow.workers") == []


def test_retention_leaves_a_worker_that_a_task_names(suite, runs):
    suite.do("update pgflow.workers set last_heartbeat_at = now() - interval '10 days'")

    suite.do("select pgflow._prune_workers(now() - interval '5 days')")

    assert suite.task(runs[2], "a")["last_worker_id"] == suite.worker("f")


def test_a_person_who_has_a_task_stays(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    claim = "select token from pgflowd.task_claim('f', null, interval '20 days', 'ann')"
    token = suite.value(claim)
    suite.do("update pgflow.workers set last_heartbeat_at = now() - interval '10 days'")

    prune(suite, 5)

    done = "select pgflowd.task_complete(%s, 'a', 0, '1', 'ann')"
    assert token is not None
    assert suite.value(done, run) == "completed"
    prune(suite, 5)
    assert suite.column("select * from pgflow.workers") == []


@covers("database 7")
def test_silent_workers_cost_one_pass_over_the_tasks_and_so_many_pages_more(suite, runs):
    suite.do(
        "insert into pgflow.workers (worker_id, queue_name, function_name, last_heartbeat_at)"
        " select gen_random_uuid(), 'f', n, now() - interval '9 days' - n * interval '1 minute'"
        " from generate_series(1, 50) as n"
    )
    pages = suite.value("select pg_relation_size('pgflow.step_tasks') / 8192")
    scans = "select seq_scan from pg_stat_xact_user_tables where relname = 'step_tasks'"
    suite.do("set enable_indexscan = off; set enable_bitmapscan = off")
    before = suite.value(scans)

    deleted = suite.value("select pgflow._prune_workers(now() - interval '5 days', %s)", 4 * pages)

    assert deleted == 4, "the oldest ones"
    assert suite.column("select min(function_name::int) from pgflow.workers where queue_name = 'f'"
                        " and function_name ~ '^[0-9]'") == [1]  # fmt: skip
    assert suite.value(scans) - before <= 1 + 4
    assert suite.value("select pgflow._prune_workers(now() - interval '5 days', 0)") == 1
    assert suite.value("select pgflow._prune_workers(now() - interval '5 days')") == 45


def test_statuses_below_do_not_matter(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "a")
    old(suite, run, "failed_at")

    prune(suite, 5)

    assert left(suite) == set()
    assert suite.value("select count(*) from pgflow.step_tasks") == 0


def test_exactly_at_the_cutoff_a_run_stays(suite, runs):
    prune(suite, 10)

    assert left(suite) == set(runs)


def test_a_lost_queue_does_no_harm(suite, runs):
    suite.do("select pgmq.drop_queue('f')")

    prune(suite, 5)

    assert left(suite) == {runs[2]}


def test_pruning_an_empty_database_does_no_harm(suite):
    prune(suite, 1)


def test_the_elixir_form_prunes_some_flows_and_counts(suite, runs):
    suite.flow("MyFlow", "a")
    other = suite.start("MyFlow")
    suite.finish("MyFlow")
    old(suite, other, "completed_at")
    suite.do("update pgflow.workers set last_heartbeat_at = now() - interval '9 days'")

    row = suite.row(
        "select * from pgflow.prune_data_older_than(p_retention_interval => interval '5 days',"
        " p_flow_slugs => array['f'])"
    )

    assert row == {
        "deleted_runs": 2, "deleted_step_states": 4, "deleted_step_tasks": 3, "deleted_workers": 2,
    }  # fmt: skip
    assert left(suite) == {runs[2], other}

    row = suite.row("select * from pgflow.prune_data_older_than(interval '5 days', null)")

    assert row["deleted_runs"] == 1 and left(suite) == {runs[2]}
