"""Runners decode and encode, alone and shared, and so do clients."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from pgflowd import Client
from pgflowd.core.messages import Wake

MODULE = """
    from dataclasses import dataclass
    from decimal import Decimal
    from pgflowd import Context, Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout=30)

    @dataclass
    class Order:
        prices: list[Decimal]

    @dataclass
    class Total:
        total: Decimal

    @flow.step
    {sort}def lines(run: Order) -> list[Decimal]:
        return run.prices

    @flow.map(over=lines)
    {sort}def twice(item: Decimal, ctx: Context) -> Decimal:
        assert isinstance(ctx.flow_input(Order), Order)
        return 2 * item

    @flow.step
    {sort}def total(twice: list[Decimal], run: Order, ctx: Context) -> Total:
        assert len(run.prices) == len(ctx.step_output("lines", list[Decimal]))
        return Total(sum(twice))
"""


@dataclass
class Given:
    prices: list[float]


@dataclass
class Total:
    total: str


@pytest.mark.own_session
@pytest.mark.parametrize("sort", ["", "async "])
def test_runners_decode_what_handlers_take_and_encode_what_they_return(
    start_worker, database, sort
):
    shared = {"max_concurrency": 8, "tasks_per_runner": 8} if sort else {}
    worker = start_worker(MODULE.format(sort=sort), **shared)
    with Client(database.dsn) as client:
        run = client.start_flow("flow", Given([1.5, 3.0]))
        bad = client.start_flow("flow", {"prices": ["abc"]})
        worker.send(Wake())
        done = client.wait(run.run_id, timeout=30)
        failed = client.wait(bad.run_id, timeout=30)
        whole = client.get_run_with_states(run.run_id)

    assert done.output_as("total", Total) == Total("9.0")
    assert whole.output_as("twice", list[float | str]) == ["3.0", "6.0"]
    with pytest.raises(Exception, match=r"E411 .*no output of step 'totl'; did you mean 'total'"):
        done.output_as("totl", Total)
    assert failed.error is not None and failed.error.startswith(
        "E417 run.prices[0]: invalid decimal string: 'abc' (run: Order)"
    )
    attempts = worker.column("select count(*) from pgflowd.attempts where run_id = %s", bad.run_id)
    assert attempts == [1]
