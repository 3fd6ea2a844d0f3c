"""Schemas of typed flows: printed, deployed, changed, and what `runs start` refuses by them."""

from __future__ import annotations

TYPED = """
from dataclasses import dataclass
from decimal import Decimal
from pgflowd import Flow

orders = Flow("orders")


@dataclass
class Order:
    prices: list[Decimal]


@dataclass
class Priced:
    total: Decimal


@orders.step
def price(run: Order) -> Priced:
    return Priced(Decimal(sum(run.prices)))


@orders.step
def ship(price: Priced): ...
"""
OLD = TYPED.replace("list[Decimal]", "list[int]")
UNTYPED = TYPED.replace("run: Order", "run")


def test_a_typed_flow_is_deployed_and_its_inputs_are_checked(here, shop, project):
    module = project / "shop_flows.py"
    before = module.read_text()

    def deploy(code: str) -> str:
        module.write_text(before + code)
        ended = here("flows", "deploy", "orders")
        assert ended.code == 0, ended.err
        return ended.out

    deploy(OLD)
    schema = here("flows", "schema", "orders").json
    assert schema["steps"][0]["parameters"]["run"] == schema["input"]
    one = here("flows", "schema", "orders", "--step", "ship", "--json").json
    assert [each["step"] for each in one["steps"]] == ["ship"]
    assert one["steps"][0]["output"] is None
    refused = here("runs", "start", "orders", '{"prices": [1, "2"]}')
    assert refused.code == 1
    assert "orders: input.prices[1]: expected integer, got string '2'" in refused.err
    assert refused.err.startswith("E417")
    assert here("runs", "start", "orders", '{"prices": [1]}').code == 0

    module.write_text(before + TYPED)
    warned = here("check").out
    assert "W310" in warned and "`runs start` checks the old ones" in warned.replace("\n", " ")
    deploy(TYPED)
    assert here("runs", "start", "orders", '{"prices": ["2"]}').code == 0
    deploy(UNTYPED)
    assert here("runs", "start", "orders", "7").code == 0
    stored = "select count(*) from pgflowd.flow_options where input_schema is not null"
    assert shop.conn.execute(stored).fetchone() == (0,)


def test_check_shows_producers_that_do_not_fit(here, shop, project):
    module = project / "shop_flows.py"
    module.write_text(
        module.read_text() + TYPED.replace("ship(price: Priced)", "ship(price: Order)")
    )

    ended = here("check")

    assert ended.code == 1
    assert "field 'prices' is missing" in ended.out and "E217" in ended.out
