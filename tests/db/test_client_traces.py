"""A start keeps the trace of its caller, and costs nothing without one."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from opentelemetry import context, trace

from pgflowd import AsyncClient
from pgflowd.errors import UnknownFlow

TRACE = "ab" * 16
CALLER = f"00-{TRACE}-{'cd' * 8}-00"


@pytest.fixture
def caller():
    """A span that is current, of a trace that nobody writes."""
    state = trace.TraceState([("a", "1")])
    span = trace.SpanContext(int(TRACE, 16), int("cd" * 8, 16), True, trace_state=state)
    token = context.attach(trace.set_span_in_context(trace.NonRecordingSpan(span)))
    yield
    context.detach(token)


def rows(database) -> list[tuple[str, str]]:
    query = "select traceparent, tracestate from pgflowd.runs order by created_at"
    return database.connect().execute(query).fetchall()


@pytest.fixture
def client(database):
    database.connect().execute(
        "select pgflow.create_flow('mail'); select pgflow.add_step('mail', 'send')"
    )
    return database.client


def test_a_start_without_a_span_has_no_row(client, database) -> None:
    client.start_flow("mail", {})
    client.start_flows("mail", [1, 2])
    assert rows(database) == []


def test_each_start_keeps_the_span_of_its_caller(client, database, caller) -> None:
    async def start() -> None:
        async with AsyncClient(database.dsn) as other:
            await other.start_flow("mail", {})

    run = client.start_flow("mail", {})
    client.start_flows("mail", [1, 2], labels={"a": "b"})
    asyncio.run(start())
    assert rows(database) == [(CALLER, "a=1")] * 4
    query = "select pgflowd.trace_id(%s)"
    assert database.connect().execute(query, (run.run_id,)).fetchone() == (TRACE,)
    with pytest.raises(UnknownFlow):
        client.start_flow("unknown", {})


@pytest.mark.parametrize(
    ("traceparent", "tracestate"),
    [("x", None), (f"00-{'0' * 32}-{'cd' * 8}-01", None), (CALLER, "x" * 513), (None, "a=1")],
)
def test_sql_refuses_what_is_no_trace(client, database, traceparent, tracestate) -> None:
    query = "select pgflowd.start('mail', '{}', traceparent => %s, tracestate => %s)"
    with pytest.raises(psycopg.Error) as refused:
        database.connect().execute(query, (traceparent, tracestate))
    assert refused.value.sqlstate == "PF009"
