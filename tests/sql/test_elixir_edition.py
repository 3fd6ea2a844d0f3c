"""The functions of the Elixir edition."""

import uuid

import pytest
from psycopg.types.json import Jsonb
from support.covers import covers


def test_flow_exists(suite):
    suite.flow("f")

    assert suite.value("select pgflow.flow_exists(p_flow_slug => 'f')") is True
    assert suite.value("select pgflow.flow_exists('nobody')") is False


def test_get_flow_input(suite):
    suite.flow("f", "a")
    run = suite.start("f", {"x": 1})

    assert suite.value("select pgflow.get_flow_input(p_run_id => %s)", run) == {"x": 1}
    assert suite.value("select pgflow.get_flow_input(%s)", uuid.uuid4()) is None


def test_get_step_output(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", {"y": 1})
    ask = "select pgflow.get_step_output(p_run_id => %s, p_step_slug => %s)"

    assert suite.value(ask, run, "a") == {"y": 1}
    assert suite.value(ask, run, "b") is None
    assert suite.value(ask, uuid.uuid4(), "a") is None


def test_register_worker_inserts_and_later_only_updates_the_heartbeat(suite):
    worker = uuid.uuid4()
    suite.do("select pgflow.register_worker(%s, 'f', 'one')", worker)
    suite.do("update pgflow.workers set last_heartbeat_at = now() - interval '1 hour'")

    suite.do(
        "select pgflow.register_worker(p_worker_id => %s, p_queue_name => 'g',"
        " p_function_name => 'two')",
        worker,
    )

    row = suite.row("select * from pgflow.workers")
    assert (row["queue_name"], row["function_name"]) == ("f", "one")
    assert row["last_heartbeat_at"] >= suite.value("select now()")


def stall(suite, seconds):
    suite.do(
        "update pgflow.step_tasks set queued_at = now() - interval '1 day',"
        " started_at = now() - make_interval(secs => %s)",
        seconds,
    )


def recover(suite, threshold):
    return suite.row("select * from pgflow.recover_stalled_tasks(%s)", threshold)


@pytest.fixture
def run(suite):
    suite.flow("f", ("a", {"timeout": 20}), timeout=60)
    run = suite.start("f")
    suite.claim("f")
    return run


def test_recovery_waits_for_the_step_s_timeout_and_the_given_seconds(suite, run):
    stall(suite, 24)
    assert recover(suite, 5.0) == {"recovered_count": 0, "vt_batches": 0}
    stall(suite, 26)

    assert recover(suite, 5.0) == {"recovered_count": 1, "vt_batches": 1}

    task = suite.task(run, "a")
    assert (task["status"], task["requeued_count"], task["attempts_count"]) == ("queued", 1, 1)
    assert suite.delay("f", task["message_id"]) <= 0


def test_recovery_gives_up_after_three_times(suite, run):
    suite.do("update pgflow.step_tasks set requeued_count = 3")
    stall(suite, 100)

    assert recover(suite, 5)["recovered_count"] == 0
    assert suite.task(run, "a")["permanently_stalled_at"] is not None
    assert suite.active("f") == []


def test_recovery_leaves_ended_runs_alone(suite):
    suite.flow("g", "a", "b", max_attempts=1)
    run = suite.start("g")
    suite.claim("g")
    suite.fail(run, "a")
    stall(suite, 1000)

    assert recover(suite, 1)["recovered_count"] == 0


def test_queues_touched_are_counted(suite, run):
    suite.flow("g", "m*")
    suite.start("g", [1, 2, 3])
    suite.claim("g")
    stall(suite, 1000)

    assert recover(suite, 1.5) == {"recovered_count": 4, "vt_batches": 2}


def test_flows_have_a_type(suite):
    suite.flow("f")
    assert suite.value("select flow_type from pgflow.flows") == "flow"

    suite.do("update pgflow.flows set flow_type = 'job'")


DEPLOY = "select * from pgflow.analyze_and_create_flow(%s, %s::jsonb, %s::jsonb)"


@covers("promise 9")
def test_its_workers_deploy_a_flow(suite):
    options = Jsonb({"max_attempts": 2, "base_delay": 1, "timeout": 9, "flow_type": "flow"})
    steps = [
        {"slug": "fetch", "deps": [], "step_type": "single", "timeout": 5},
        {"slug": "each", "deps": ["fetch"], "step_type": "map", "start_delay": 3},
        {"slug": "last", "deps": ["fetch", "each"]},
    ]

    first = suite.value(DEPLOY, "f", options, Jsonb(steps))
    again = suite.value(DEPLOY, "f", options, Jsonb(steps))

    assert first == {"status": "compiled", "differences": []}
    assert again == {"status": "verified", "differences": []}
    flow = suite.row("select opt_max_attempts, opt_base_delay, opt_timeout from pgflow.flows")
    assert tuple(flow.values()) == (2, 1, 9)
    columns = "step_slug, step_type, deps_count, opt_timeout, opt_start_delay"
    found = suite.rows(f"select {columns} from pgflow.steps order by step_index")
    assert [tuple(step.values()) for step in found] == [
        ("fetch", "single", 0, 5, None),
        ("each", "map", 1, None, 3),
        ("last", "single", 2, None, None),
    ]


def test_another_shape_is_told_and_loses_no_data(suite):
    suite.value(DEPLOY, "f", Jsonb({}), Jsonb([{"slug": "a"}]))
    run = suite.start("f")

    answer = suite.value(DEPLOY, "f", Jsonb({}), Jsonb([{"slug": "b"}]))

    assert answer["status"] == "mismatch" and "slug" in answer["differences"][0]
    assert suite.value("select run_id from pgflow.runs") == run


def test_its_workers_call_by_position_and_take_the_run_id_first(suite):
    suite.flow("f", "a")

    row = suite.conn.execute(
        "select * from pgflow.start_flow(%s, %s::jsonb)", ("f", "{}")
    ).fetchone()

    assert row[0] == suite.value("select run_id from pgflow.runs")


def test_its_compiler_gives_eight_arguments_by_position(suite):
    suite.flow("f", "a")

    row = suite.row(
        "select * from pgflow.add_step(%s, %s, %s, %s, %s, %s, %s, %s)",
        "f", "b", ["a"], None, 1, 30, None, "map",
    )  # fmt: skip

    assert (row["step_type"], row["opt_base_delay"], row["opt_timeout"]) == ("map", 1, 30)


def test_messages_are_read_with_named_arguments(suite):
    suite.flow("f", "a")
    suite.start("f")

    rows = suite.rows("select * from pgmq.read(queue_name => 'f', vt => 5, qty => 10)")

    assert len(rows) == 1
