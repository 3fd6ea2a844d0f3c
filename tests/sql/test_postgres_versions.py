"""The core on each supported PostgreSQL: installation, a diamond, a map, a failure, events."""

import json
import uuid

import pytest
from support.contract import ContractDatabase, broken_invariants
from support.postgres_versions import MAJORS, binaries_of

from pgflowd.embedded import EmbeddedPostgres
from pgflowd.testing.scratch import ScratchServer


@pytest.fixture(scope="module", params=MAJORS)
def server(request, tmp_path_factory):
    directory = tmp_path_factory.mktemp(f"pg{request.param}")
    with EmbeddedPostgres(directory, binaries=binaries_of(request.param)) as postgres:
        scratch = ScratchServer(postgres.dsn)
        yield request.param, scratch
        scratch.close()


@pytest.fixture
def shared(server):
    major, scratch = server
    with scratch.database() as database:
        shared = ContractDatabase(database.dsn)
        assert shared.value("show server_version_num")[:2] == str(major)
        yield shared
        shared.close()


def test_a_diamond_runs_from_top_to_bottom(shared):
    shared.flow("MyFlow", "a", "b: a", "c: a", "d: b c")
    run = shared.start("MyFlow", {"x": 1})

    shared.finish("MyFlow", {"a": 1, "b": 2, "c": 3, "d": 4})

    assert shared.run(run)["output"] == {"d": 4}
    assert len(shared.archive("MyFlow")) == 4 and broken_invariants(shared) == []


def test_maps_fill_and_empty_ones_cascade(shared):
    shared.flow("f", "a", "m*: a", "n*: m", "z: n")
    full, empty = shared.start("f"), shared.start("f")
    shared.claim("f")
    shared.complete(full, "a", [1, 2, 3])
    shared.complete(empty, "a", [])

    shared.finish("f", {"z": "end"})

    assert shared.state(full, "n")["output"] == [0, 1, 2]
    assert shared.state(empty, "n")["output"] == []
    assert broken_invariants(shared) == []


def test_failures_retry_exhaust_and_skip(shared):
    options = {"when_exhausted": "skip-cascade", "base_delay": 0}
    shared.flow("f", ("a", options), "b: a", "c", max_attempts=2)
    run = shared.start("f")
    shared.claim("f")
    shared.complete(run, "c", 1)
    shared.fail(run, "a")
    shared.claim("f")
    shared.fail(run, "a", "boom")

    assert shared.statuses(run) == {"a": "skipped", "b": "skipped", "c": "completed"}
    assert shared.run(run)["output"] == {"c": 1}


def test_a_violation_and_a_condition_fail_their_runs(shared):
    never = {"required_input_pattern": {"x": 1}, "when_unmet": "fail"}
    shared.flow("f", "a", "m*: a")
    shared.flow("g", ("a", never))
    run = shared.start("f")
    shared.claim("f")
    shared.complete(run, "a", "text")

    assert shared.run(run)["status"] == shared.run(shared.start("g"))["status"] == "failed"


def test_stalled_tasks_are_recovered(shared):
    shared.flow("f", "a")
    run = shared.start("f")
    shared.claim("f")
    shared.do("update pgflow.step_tasks set queued_at = '2000-01-01', started_at = '2000-01-01'")

    assert shared.value("select pgflow.requeue_stalled_tasks()") == 1
    assert len(shared.claim("f")) == 1 and shared.task(run, "a")["attempts_count"] == 2


def test_a_run_is_followed_by_notifications(shared):
    shared.flow("f", "a")
    run, listener = uuid.uuid4(), shared.session(autocommit=True)
    listener.do(f'listen "pgflow:run:{run}"')
    listener.do("select pgflowd.follow(%s)", [run])
    shared.start("f", {}, run)
    shared.finish("f")

    received = [json.loads(one.payload) for one in listener.conn.notifies(timeout=5, stop_after=4)]
    assert [payload["event_type"] for payload in received] == [
        "run:started", "step:started", "step:completed", "run:completed",
    ]  # fmt: skip


def test_old_runs_are_pruned_and_flows_deleted(shared):
    shared.flow("f", "a")
    run = shared.start("f")
    shared.finish("f")
    shared.do("update pgflow.runs set started_at = '-infinity', completed_at = '2000-01-01'")

    shared.do("select pgflow.prune_data_older_than('1 day')")
    assert shared.rows("select * from pgflow.runs where run_id = %s", run) == []
    shared.do("select pgflow.delete_flow_and_data('f')")
    assert shared.rows("select * from pgmq.list_queues()") == []


def test_a_shape_is_compiled_and_verified(shared):
    ask = "select pgflow.ensure_flow_compiled('f', pgflow._get_flow_shape('g'))"
    shared.flow("g", "a", "m*: a")

    statuses = [shared.value(ask)["status"] for _ in range(2)]

    assert statuses == ["compiled", "verified"]
