"""open_tasks: by this number KEDA decides how many daemons there should be, on every core."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.leases import LeaseDatabase


def open_tasks(db: LeaseDatabase, *flows: str) -> int:
    return int(db.value("select pgflowd.open_tasks(%s)", list(flows)))


def test_what_is_ready_and_what_runs_is_counted_once(own: LeaseDatabase):
    flow, other = own.flow("a", "b"), own.flow()
    own.start(flow)
    own.start(other)
    assert open_tasks(own, flow) == 2

    task, _ = own.claim(flow, own.worker(flow))
    assert open_tasks(own, flow) == 2
    own.complete(task)

    assert open_tasks(own, flow) == 1
    assert open_tasks(own, flow, other, flow) == 2
    assert open_tasks(own) == 0


def test_a_task_whose_lease_has_lapsed_is_counted_once(own: LeaseDatabase):
    flow = own.flow()
    own.start(flow)
    task = own.claim_one(flow, own.worker(flow))
    own.lapse(task)
    own.show(task)

    assert open_tasks(own, flow) == 1


def test_what_waits_or_is_delayed_is_not_counted(own: LeaseDatabase):
    flow = own.flow("a", "b")
    own.start(flow)
    waiting, delayed = own.claim(flow, own.worker(flow))
    own.suspend(waiting, {"kind": "signal", "name": "go", "checkpoint": "signal go 1"})
    own.release(delayed, delay="1 h")

    assert open_tasks(own, flow) == 0


def test_what_a_person_does_is_not_counted(own: LeaseDatabase):
    flow = own.flow("a", "b")
    own.start(flow)
    own.do("select from pgflowd.task_claim(%s, '{}', '30 days', 'jane')", flow)
    own.claim(flow, own.worker(flow))

    assert open_tasks(own, flow) == 1


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


def test_an_unknown_flow_is_refused(own: LeaseDatabase):
    with pytest.raises(psycopg.Error, match="there is no flow 'ordres'") as error:
        open_tasks(own, own.flow(), "ordres")

    assert error.value.sqlstate == "PF002"


def test_it_counts_to_ten_thousand(own: LeaseDatabase):
    flow = own.flow("m*")
    own.start(flow, list(range(20_050)))

    assert open_tasks(own, flow) == 10_000
    own.claim(flow, own.worker(flow), max_tasks=10_020)

    assert open_tasks(own, flow) == 20_000
