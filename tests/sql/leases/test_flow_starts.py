"""What a flow says of each start, from its input: title, labels, expiry and singleton key."""

from __future__ import annotations

import json
import uuid
from typing import Any

import psycopg
import pytest
from support.covers import covers
from support.leases import LeaseDatabase, Row

from pgflowd import Flow
from pgflowd.core.definition.schedule import labels_of, singleton_of, title_of

OPTIONS: dict[str, Any] = {
    "title": "{run.customer}: {run.items[0]}",
    "labels": {"customer": "run.customer", "first": "run.items[0]"},
    "expires": "3d",
    "singleton": "order {run.id}",
}


def defined(db: LeaseDatabase, **options: Any) -> Flow:
    flow = Flow(f"flow_{uuid.uuid4().hex[:8]}", **options)
    flow.step(slug="a")(lambda run: run)
    db.value("select pgflowd.define(%s, %s::jsonb)", flow.slug, json.dumps(flow.shape()))
    return flow


def ours(db: LeaseDatabase, run: Any) -> Row:
    [row] = db.rows(
        "select title, labels, singleton_key, extract(epoch from expires_at - created_at)::int as s"
        " from pgflowd.runs where run_id = %s",
        run,
    )
    return row


@covers("friction 6")
@pytest.mark.parametrize(
    "start",
    [
        "select run_id from pgflow.start_flow(%s, %s::jsonb)",
        "select run_id from pgflow.start_flows(%s, array[%s::jsonb])",
        "select (pgflow.start_flow_with_states(%s, %s::jsonb) #>> '{run,run_id}')::uuid",
        "select run_id from pgflowd.start(%s, %s::jsonb)",
    ],
)
def test_every_way_to_start_has_them(own: LeaseDatabase, start: str) -> None:
    flow = defined(own, **OPTIONS)
    given = {"customer": "ACME", "items": ["nuts", 2], "id": 7}

    run = own.value(start, flow.slug, json.dumps(given))

    found = ours(own, run)
    assert (found.title, found.singleton_key) == ("ACME: nuts", "order 7")
    assert found.labels == {"customer": "ACME", "first": "nuts"}
    assert abs(found.s - 3 * 86_400) < 60
    document = own.value("select pgflowd.get_run(%s) -> 'run'", run)
    assert document["title"] == "ACME: nuts"
    assert len(own.claim(flow.slug, own.worker(flow.slug))) == 1


INPUTS: list[Any] = [
    {"customer": "ACME", "items": ["nuts"], "id": "x"},
    {"id": 1, "customer": {"name": "ACME"}, "items": []},
    {"id": 1.50, "customer": True, "items": [None, 1]},
    {"id": False, "customer": "line\none\u0085\x1b[31m", "items": {"0": "zero"}},
    {"id": "é" * 3, "customer": "x" * 500, "items": [["deep"]]},
    {"id": 10**20, "customer": "  blanks  ", "items": [1e-7]},
]


@pytest.mark.parametrize("given", INPUTS, ids=lambda given: str(given["id"])[:8])
def test_python_computes_the_same(own: LeaseDatabase, given: Any) -> None:
    flow = defined(own, **OPTIONS)
    stored = own.value("select %s::jsonb", json.dumps(given))

    start = "select run_id from pgflow.start_flow(%s, %s::jsonb)"
    run = own.value(start, flow.slug, json.dumps(given))

    found = ours(own, run)
    assert found.title == title_of(flow.options, stored)
    assert (found.labels or {}) == labels_of(flow.options, stored)
    assert found.singleton_key == singleton_of(flow.slug, flow.options, stored)
    assert len(found.title or "") <= 120


@pytest.mark.parametrize("option", OPTIONS)
def test_each_of_them_does_without_the_others(own: LeaseDatabase, option: str) -> None:
    """A flow with a title, and without a singleton key, could not be started at all."""
    flow = defined(own, **{option: OPTIONS[option]})
    given = {"customer": "ACME", "items": ["nuts"], "id": 7}

    found = ours(own, own.start(flow.slug, given))

    assert (found.title, found.labels, found.singleton_key, found.s is not None) == (
        "ACME: nuts" if option == "title" else None,
        {"customer": "ACME", "first": "nuts"} if option == "labels" else None,
        "order 7" if option == "singleton" else None,
        option == "expires",
    )


def test_a_start_may_say_otherwise(own: LeaseDatabase) -> None:
    flow = defined(own, **OPTIONS)

    run = own.value(
        "select run_id from pgflowd.start(%s, %s::jsonb, labels => '{\"first\": \"mine\"}',"
        " expires_at => now() + '1 hour', singleton_key => 'mine')",
        flow.slug, json.dumps({"id": 1, "customer": "A", "items": [1]}))  # fmt: skip

    found = ours(own, run)
    assert found.labels == {"customer": "A", "first": "mine"}
    assert (found.singleton_key, round(found.s / 60)) == ("mine", 60)


def test_an_empty_key_means_none(own: LeaseDatabase) -> None:
    flow = defined(own, singleton="order {run.id}")
    start = "select run_id from pgflowd.start(%s, %s::jsonb, singleton_key => '')"

    runs = [own.value(start, flow.slug, '{"id": 1}') for _ in range(2)]

    assert [ours(own, run).singleton_key for run in runs] == [None, None]
    statuses = "select array_agg(status) from pgflowd.run_status where flow_slug = %s"
    assert own.value(statuses, flow.slug) == ["started", "started"]


def test_lists_have_the_title(own: LeaseDatabase) -> None:
    flow = defined(own, title="order of {run.customer}")
    planned = "select run_id from pgflowd.start(%s, %s::jsonb, start_at => now() + '1 hour')"
    run = own.start(flow.slug, {"customer": "ACME"})
    own.value(planned, flow.slug, '{"customer": "Bolt"}')

    for function in ("list_runs", "search_runs"):
        found = own.rows(f"select title from pgflowd.{function}(%s)", flow.slug)
        assert [row.title for row in found] == ["order of Bolt", "order of ACME"], function
    assert (
        own.value("select title from pgflowd.runs_by_id(array[%s::uuid])", run) == "order of ACME"
    )
    assert own.value("select title from pgflowd.list_tasks(%s)", run) == "order of ACME"
    approval = {"kind": "signal", "name": "a", "why": "approval", "checkpoint": "signal a 1"}
    own.suspend(own.claim(flow.slug, own.worker(flow.slug))[0], approval)
    assert own.value("select title from pgflowd.list_inbox()") == "order of ACME"


def test_runs_with_the_same_key_wait_in_line(own: LeaseDatabase) -> None:
    flow = defined(own, singleton="order {run.id}")
    starts = "select pgflow.start_flow_with_states(%s, %s::jsonb) #>> '{run,status}'"

    statuses = [own.value(starts, flow.slug, json.dumps({"id": n})) for n in (1, 1, 2)]

    assert statuses == ["started", "blocked", "started"]
    worker = own.worker(flow.slug)
    for task in own.claim(flow.slug, worker):
        own.complete(task)
    own.value("select count(*) from pgflowd.process_due()")
    assert len(own.claim(flow.slug, worker)) == 1


def test_a_singleton_key_of_what_is_missing_is_refused(own: LeaseDatabase) -> None:
    flow = defined(own, singleton="order {run.id}")

    with pytest.raises(psycopg.Error, match=r"made of run\.id, which the input lacks") as refused:
        own.start(flow.slug)

    assert refused.value.sqlstate == "PF009"


def test_nobody_may_get_the_key_of_a_schedule(own: LeaseDatabase) -> None:
    flow = defined(own, singleton="{run.key}")

    with pytest.raises(psycopg.Error, match="schedule"):
        own.value('select pgflow.start_flow(%s, \'{"key": "schedule x"}\')', flow.slug)


@pytest.mark.parametrize(
    "start",
    ["pgflow._start_wished(%s, '{\"{}\"}', array[%s::uuid])", "pgflow.start_flow(%s, '{}', %s)"],
)
def test_nobody_may_get_the_id_that_a_key_has(own: LeaseDatabase, start: str) -> None:
    flow = defined(own, title="{run.id}")
    taken = own.value("select pgflowd._run_id_of_key(%s, 'mine')", flow.slug)

    with pytest.raises(psycopg.Error, match="version 8") as refused:
        own.value(f"select {start}", flow.slug, taken)

    assert refused.value.sqlstate == "PF009"


def test_a_definition_without_them_takes_them_away(own: LeaseDatabase) -> None:
    flow = defined(own, **OPTIONS)
    shape = own.value("select pgflowd.flow_shape(%s)", flow.slug)
    plain = Flow(flow.slug)
    plain.step(slug="a")(lambda run: run)
    compared = "select option from pgflowd.compare_options(%s, %s::jsonb)"
    assert own.rows(compared, flow.slug, json.dumps(flow.shape())) == []
    changed = [row.option for row in own.rows(compared, flow.slug, json.dumps(plain.shape()))]

    own.value("select pgflowd.define(%s, %s::jsonb)", flow.slug, json.dumps(plain.shape()))
    own.start(flow.slug)

    assert {key: shape["options"][key] for key in OPTIONS} == {**OPTIONS, "expires": 3 * 86_400}
    assert sorted(changed) == sorted(OPTIONS)
    assert own.value("select count(*) from pgflowd.runs") == 0
    assert own.value("select starts from pgflow.flows where flow_slug = %s", flow.slug) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"title": "{customer}"}, "{customer} is no placeholder"),
        ({"title": "{run.customer!r}"}, "is no placeholder"),
        ({"title": "a } b"}, "} is no placeholder"),
        ({"title": "{run.items[first]}"}, "is no placeholder"),
        ({"title": ""}, "1 to 500 characters"),
        ({"title": 5}, "must be a text"),
        ({"title": "a\0"}, "cannot store"),
        ({"singleton": "{run"}, "is no placeholder"),
        ({"labels": {"a": "customer"}}, "no path into the input"),
        ({"labels": {"a": "{run.a}"}}, "no path into the input"),
        ({"labels": {}}, "must be a dict"),
        ({"labels": {1: "run.a"}}, "must be a text"),
        ({"expires": "soon"}, "soon"),
        ({"expires": 0}, "a second or more"),
    ],
)
def test_check_names_what_is_wrong(options: dict[str, Any], text: str) -> None:
    flow = Flow("flow", **options)
    flow.step(slug="a")(lambda run: run)

    [problem] = flow.check()

    assert problem.code == "E209" and text in problem.text
