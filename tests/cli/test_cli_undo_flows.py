"""Flows with undos on screens: what undoes them is deployed, compared and deleted along."""

from __future__ import annotations

import uuid

import pytest

MODULE = """
from pgflowd import Flow

orders = Flow("orders")

@orders.step
def reserve(run): ...

@orders.step
def charge(reserve): ...

@orders.undo(charge, on="attempted")
def refund(charge=None): ...
"""


@pytest.fixture
def orders(elsewhere, database, monkeypatch):
    monkeypatch.chdir(elsewhere)
    (elsewhere / "pgflowd.toml").write_text(
        f'[pgflowd]\nflows = ["order_flows"]\n[database]\nurl = "{database.dsn}"\n'
    )
    (elsewhere / "order_flows.py").write_text(MODULE)
    return elsewhere / "order_flows.py"


def slugs(told) -> list[str]:
    return [line.split()[0] for line in told.out.splitlines()[1:]]


def test_what_undoes_a_flow_is_deployed_with_it_and_listed_on_request(here, orders):
    assert here("flows", "deploy", "orders").code == 0

    assert slugs(here("flows", "list")) == ["orders"]
    assert slugs(here("flows", "list", "-v")) == ["orders", "undo_orders"]
    listed = here("flows", "list", "--json").json["flows"]
    assert [each["undoes"] for each in listed] == [None, "orders"]
    shown = here("flows", "show", "orders").out
    assert "on_failure undo, on_cancel keep" in shown
    assert "attempted" in shown
    assert "undoes runs of orders" in here("flows", "show", "undo_orders").out


def test_check_tells_which_steps_have_an_undo(here, orders):
    checked = here("check")

    assert "1 flow, 1 with undo" in checked.err
    flows = here("check", "--json").json["flows"]
    assert [(each["undo"], each["undoes"]) for each in flows] == [
        (["charge"], None), ([], "orders"),
    ]  # fmt: skip


def test_w318_another_runtime_does_not_know_that_a_run_is_being_undone(here, orders, database):
    here("flows", "deploy")
    worker = "insert into pgflow.workers (worker_id, queue_name, function_name) values (%s, %s, %s)"
    database.connect().execute(worker, (uuid.uuid4(), "orders", "edge-worker"))

    (problem,) = here("check", "--json").json["problems"]

    assert problem["code"] == "W318"
    assert "orders: its runs are undone, but worker edge-worker of another" in problem["text"]


def test_a_flow_is_deleted_with_what_undoes_it(here, orders):
    here("flows", "deploy")

    assert here("flows", "delete", "orders", "--yes").out == "orders is deleted\n"
    assert here("flows", "list", "-v").out == ""


def test_old_versions_are_pruned_with_those_that_undid_them(here, orders):
    here("flows", "deploy")
    for slug in ("ship", "hand_over"):
        step = f"\n@orders.step(after=['charge'])\ndef {slug}(): ...\n"
        orders.write_text(f"{MODULE}{step}\n@orders.undo({slug})\ndef un_{slug}(): ...\n")
        assert here("flows", "deploy", "--yes").code == 0

    pruned = here("flows", "prune-versions", "orders", "--json").json

    assert pruned["deleted"] == ["orders_2", "undo_orders_2"]
    here("flows", "delete", "orders", "--yes")
    assert here("flows", "list", "-v").out == ""
