"""A list of runs a page at a time: of whatever size, each run that fits is on one of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from uuid import UUID

import pytest
from support.leases import LeaseDatabase

from pgflowd.core.documents.runs import PageKey, RunPage
from pgflowd.core.run_filter import RunFilter
from pgflowd.core.wishes import Moment
from pgflowd.db.query import execute
from pgflowd.db.run_details import count_runs, runs_by_id, search_runs

PLANNED = """
select run_id from pgflowd.start(%s, '1', null, start_at => now() + interval '1 day',
                                 labels => '{"customer": "42 \\"b\\""}')
"""
LABELLED = "select run_id from pgflowd.start(%s, '1', null, labels => '{\"env\": \"Prod\"}')"


def pages(db: LeaseDatabase, wanted: RunFilter, most: int, max_seen: int) -> list[RunPage]:
    found: list[RunPage] = []
    after: PageKey | None = None
    while not found or after:
        page = execute(db.conn, search_runs(wanted, most, after, max_seen))
        after = page.next and PageKey.read(page.next.text)
        found.append(page)
    return found


def ids(db: LeaseDatabase, **wanted: object) -> list[UUID]:
    (page,) = pages(db, RunFilter(**wanted), 100, 1000)  # type: ignore[arg-type]
    return [run.run_id for run in page.runs]


def ended_in_many_ways(db: LeaseDatabase) -> tuple[str, list[UUID]]:
    """Runs of one flow: in the order of their starts, some planned, some with labels."""
    flow = db.flow(max_attempts=1)
    worker = db.worker(flow)
    runs = [db.value(LABELLED, flow), db.value(PLANNED, flow)]
    at_once = "select count(*) from pgflow.start_flows(%s, array_fill('1'::jsonb, array[5]))"
    db.do(at_once, flow)
    tasks = db.claim(flow, worker, max_tasks=6)
    for task in tasks[:2]:
        db.complete(task)
    db.fail(tasks[2], "ValueError: 100% wrong", retry=False)
    db.cancel(tasks[3].run_id)
    never = db.value(PLANNED, flow)
    db.cancel(never)
    return flow, [*runs, *(task.run_id for task in tasks), never]


def test_pages_of_any_size_have_each_run_that_fits_once(own: LeaseDatabase) -> None:
    flow, _ = ended_in_many_ways(own)
    other = own.start(own.flow())
    in_order = """
        select run.run_id
          from (select run_id, started_at as at from pgflow.runs
                 union all
                select run_id, created_at from pgflowd.runs where state <> 'started') as run
         order by run.at desc, run.run_id desc
    """
    everything = own.column(in_order)
    filters = [
        RunFilter(),
        RunFilter(flow=flow),
        RunFilter(statuses=["cancelled", "failed"]),
        RunFilter(statuses=["scheduled"]),
        RunFilter(labels={"env": "Prod"}),
        RunFilter(text="wrong"),
        RunFilter(until=Moment(in_s=0)),
    ]

    for wanted in filters:
        (whole,) = pages(own, wanted, 100, 1000)
        expected = [run.run_id for run in whole.runs]
        assert [run_id for run_id in everything if run_id in expected] == expected
        count = execute(own.conn, count_runs(wanted))
        assert (count.found, count.searched_to) == (len(expected), None)
        for most, max_seen in product((1, 2, 3, 100), (1, 2, 4, 100)):
            found = pages(own, wanted, most, max_seen)
            assert [run.run_id for page in found for run in page.runs] == expected
            assert all(len(page.runs) <= most and page.seen <= 2 * max_seen for page in found)
    assert len(everything) == 9
    assert other in everything
    shown = ids(own)
    assert shown == everything
    assert ids(own, statuses=["scheduled", "cancelled"]) != []


def test_a_text_is_sought_in_errors_labels_and_ids(own: LeaseDatabase) -> None:
    flow, (labelled, planned, *_) = ended_in_many_ways(own)
    (failed,) = ids(own, statuses=["failed"])

    assert ids(own, text="100% WRONG") == [failed]
    assert ids(own, text="prod") == ids(own, text="env=prod") == [labelled]
    assert planned in ids(own, text='42 "b"')
    for part in (str(failed), failed.hex.upper(), failed.hex[:7], failed.hex[-8:]):
        assert failed in ids(own, text=f" {part} ")
    assert ids(own, text=str(planned)) == [planned]
    assert ids(own, text=str(planned), statuses=["failed"]) == []
    assert ids(own, text="_" * 7) == ids(own, text="100%_") == []
    assert ids(own, text=str(UUID(int=7))) == []
    assert len(ids(own, flow=flow)) == 8


def test_times_bound_a_list_and_statuses_of_the_waiting_reach_back_for_ever(
    own: LeaseDatabase,
) -> None:
    flow = own.flow()
    old = own.start(flow)
    own.suspend(own.claim_one(flow, own.worker(flow)))
    own.do("update pgflow.runs set started_at = started_at - interval '3 days'")
    new = own.start(flow)
    at = own.value("select started_at from pgflow.runs where run_id = %s", new)

    assert ids(own, since=Moment(in_s=-86400)) == ids(own, since=Moment(at - timedelta(1))) == [new]
    assert ids(own, until=Moment(in_s=-86400)) == [old]
    assert ids(own, until=Moment(at)) == [new, old]
    (page,) = pages(own, RunFilter(statuses=["waiting"]), 1, 1)
    assert [(run.run_id, run.status) for run in page.runs] == [(old, "waiting")]


def test_rows_of_a_list_are_read_again_by_id(own: LeaseDatabase) -> None:
    _, runs = ended_in_many_ways(own)
    (page,) = pages(own, RunFilter(), 100, 1000)

    again = execute(own.conn, runs_by_id([*runs, UUID(int=7)]))

    assert [run.run_id for run in again] == runs
    assert {run.run_id: run for run in again} == {run.run_id: run for run in page.runs}


@pytest.mark.parametrize("text", ["", "x", "2026-01-01_", "2026-01-01T00:00:00.0Z_7"])
def test_a_text_that_is_no_key_of_a_page_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        PageKey.read(text)
