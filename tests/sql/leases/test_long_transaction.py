"""A foreign transaction that stays open: dead rows cannot be removed, and claims go on."""

from __future__ import annotations

import time
from statistics import median

import pytest
from support.covers import covers
from support.leases import LeaseDatabase, element

TASKS = 20_000
AT_ONCE = 200
SAMPLE = 20


@covers("row 83")
@pytest.mark.timing
def test_a_long_foreign_transaction_slows_claims_down_less_than_tenfold(own: LeaseDatabase) -> None:
    flow = own.flow()
    worker = own.worker(flow)
    foreign = own.connect()
    foreign.execute("begin isolation level repeatable read")
    foreign.execute("select from pgflow.flows")
    many = "select from pgflow.start_flows(%s, array_fill('{}'::jsonb, array[%s]))"
    took_s = []

    for _ in range(TASKS // AT_ONCE):
        own.rows(many, flow, AT_ONCE)
        began = time.monotonic()
        tasks = own.claim(flow, worker, max_tasks=AT_ONCE)
        took_s.append(time.monotonic() - began)
        assert len(tasks) == AT_ONCE
        own.report(*(element(task) for task in tasks))

    foreign.execute("commit")
    assert median(took_s[-SAMPLE:]) < 10 * median(took_s[:SAMPLE])
    assert own.value("select count(*) from pgflow.runs where status = 'completed'") == TASKS
