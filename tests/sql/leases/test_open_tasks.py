"""open_tasks: by this number KEDA decides how many daemons there should be, on every core."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.leases import LeaseDatabase


def open_tasks(db: LeaseDatabase, *flows: str) -> int:
    return int(db.value("select pgflowd.open_tasks(%s)", list(flows)))


def test_what_is_ready_and_what_runs_is_counted_once(any_core: LeaseDatabase):
    flow, other = any_core.flow("a", "b"), any_core.flow()
    any_core.start(flow)
    any_core.start(other)
    assert open_tasks(any_core, flow) == 2

    task, _ = any_core.claim(flow, any_core.worker(flow))
    assert open_tasks(any_core, flow) == 2
    any_core.complete(task)

    assert open_tasks(any_core, flow) == 1
    assert open_tasks(any_core, flow, other, flow) == 2
    assert open_tasks(any_core) == 0


def test_a_task_whose_lease_has_lapsed_is_counted_once(any_core: LeaseDatabase):
    flow = any_core.flow()
    any_core.start(flow)
    task = any_core.claim_one(flow, any_core.worker(flow))
    any_core.lapse(task)
    any_core.show(task)

    assert open_tasks(any_core, flow) == 1


def test_what_waits_or_is_delayed_is_not_counted(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b")
    any_core.start(flow)
    waiting, delayed = any_core.claim(flow, any_core.worker(flow))
    any_core.suspend(waiting, {"kind": "signal", "name": "go", "checkpoint": "signal go 1"})
    any_core.release(delayed, delay="1 h")

    assert open_tasks(any_core, flow) == 0


def test_what_a_person_does_is_not_counted(any_core: LeaseDatabase):
    flow = any_core.flow("a", "b")
    any_core.start(flow)
    any_core.do("select from pgflowd.task_claim(%s, '{}', '30 days', 'jane')", flow)
    any_core.claim(flow, any_core.worker(flow))

    assert open_tasks(any_core, flow) == 1


def test_of_a_paused_flow_only_what_runs_is_counted(own: LeaseDatabase):
    flow = own.flow("a", "b")
    own.start(flow)
    own.claim(flow, own.worker(flow), max_tasks=1)

    own.value("select pgflowd.pause_flow(%s)", flow)
    assert open_tasks(own, flow) == 1

    own.value("select pgflowd.resume_flow(%s)", flow)
    assert open_tasks(own, flow) == 2


def test_a_name_means_all_versions_of_its_flow(own: LeaseDatabase):
    name = own.flow()
    own.start(name)
    shape = {"steps": [{"slug": "z", "stepType": "single", "dependencies": []}]}
    own.value("select pgflowd.deploy_version(%s, %s)", name, Jsonb(shape))
    own.do("select from pgflowd.start(%s, '{}')", name)

    (current,) = own.column("select flow_slug from pgflowd.versions where is_current")
    assert open_tasks(own, name) == 2
    assert open_tasks(own, current, name) == 2
    assert open_tasks(own, current) == 1


def test_an_unknown_flow_is_refused(any_core: LeaseDatabase):
    with pytest.raises(psycopg.Error, match="there is no flow 'ordres'") as error:
        open_tasks(any_core, any_core.flow(), "ordres")

    assert error.value.sqlstate == "PF002"


def test_it_counts_to_ten_thousand(own: LeaseDatabase):
    flow = own.flow("m*")
    own.start(flow, list(range(20_050)))

    assert open_tasks(own, flow) == 10_000
    own.claim(flow, own.worker(flow), max_tasks=10_020)

    assert open_tasks(own, flow) == 20_000
