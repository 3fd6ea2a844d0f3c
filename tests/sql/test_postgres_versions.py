"""The core on each supported PostgreSQL: installation, a diamond, a map, a failure, events."""

import json
import uuid

import pytest
from support.contract import Shared, broken_invariants
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
def world(server):
    major, scratch = server
    with scratch.database() as database:
        world = Shared(database.dsn)
        assert world.value("show server_version_num")[:2] == str(major)
        yield world
        world.close()


def test_a_diamond_runs_from_top_to_bottom(world):
    world.flow("MyFlow", "a", "b: a", "c: a", "d: b c")
    run = world.start("MyFlow", {"x": 1})

    world.finish("MyFlow", {"a": 1, "b": 2, "c": 3, "d": 4})

    assert world.run(run)["output"] == {"d": 4}
    assert len(world.archive("MyFlow")) == 4 and broken_invariants(world) == []


def test_maps_fill_and_empty_ones_cascade(world):
    world.flow("f", "a", "m*: a", "n*: m", "z: n")
    full, empty = world.start("f"), world.start("f")
    world.claim("f")
    world.complete(full, "a", [1, 2, 3])
    world.complete(empty, "a", [])

    world.finish("f", {"z": "end"})

    assert world.state(full, "n")["output"] == [0, 1, 2]
    assert world.state(empty, "n")["output"] == []
    assert broken_invariants(world) == []


def test_failures_retry_exhaust_and_skip(world):
    options = {"when_exhausted": "skip-cascade", "base_delay": 0}
    world.flow("f", ("a", options), "b: a", "c", max_attempts=2)
    run = world.start("f")
    world.claim("f")
    world.complete(run, "c", 1)
    world.fail(run, "a")
    world.claim("f")
    world.fail(run, "a", "boom")

    assert world.statuses(run) == {"a": "skipped", "b": "skipped", "c": "completed"}
    assert world.run(run)["output"] == {"c": 1}


def test_a_violation_and_a_condition_fail_their_runs(world):
    never = {"required_input_pattern": {"x": 1}, "when_unmet": "fail"}
    world.flow("f", "a", "m*: a")
    world.flow("g", ("a", never))
    run = world.start("f")
    world.claim("f")
    world.complete(run, "a", "text")

    assert world.run(run)["status"] == world.run(world.start("g"))["status"] == "failed"


def test_stalled_tasks_are_recovered(world):
    world.flow("f", "a")
    run = world.start("f")
    world.claim("f")
    world.do("update pgflow.step_tasks set queued_at = '2000-01-01', started_at = '2000-01-01'")

    assert world.value("select pgflow.requeue_stalled_tasks()") == 1
    assert len(world.claim("f")) == 1 and world.task(run, "a")["attempts_count"] == 2


def test_a_run_is_followed_by_notifications(world):
    world.flow("f", "a")
    run, listener = uuid.uuid4(), world.session(autocommit=True)
    listener.do(f'listen "pgflow:run:{run}"')
    world.start("f", {}, run)
    world.finish("f")

    heard = [json.loads(one.payload) for one in listener.conn.notifies(timeout=5, stop_after=4)]
    assert [payload["event_type"] for payload in heard] == [
        "run:started", "step:started", "step:completed", "run:completed",
    ]  # fmt: skip


def test_old_runs_are_pruned_and_flows_deleted(world):
    world.flow("f", "a")
    run = world.start("f")
    world.finish("f")
    world.do("update pgflow.runs set started_at = '-infinity', completed_at = '2000-01-01'")

    world.do("select pgflow.prune_data_older_than('1 day')")
    assert world.rows("select * from pgflow.runs where run_id = %s", run) == []
    world.do("select pgflow.delete_flow_and_data('f')")
    assert world.rows("select * from pgmq.list_queues()") == []


def test_a_shape_is_compiled_and_verified(world):
    ask = "select pgflow.ensure_flow_compiled('f', pgflow._get_flow_shape('g'))"
    world.flow("g", "a", "m*: a")

    statuses = [world.value(ask)["status"] for _ in range(2)]

    assert statuses == ["compiled", "verified"]
