"""A daemon with a typed flow: a wait, an undo, an older version with its handlers, new types."""

from __future__ import annotations

from typing import Any

from support.daemon import DaemonSetup

from pgflowd.testing.until import until

TYPES = """
from dataclasses import dataclass
from decimal import Decimal
from pgflowd import Fail, Flow

orders = Flow("orders", max_attempts=1)


@dataclass
class Order:
    total: Decimal


@dataclass
class Paid:
    amount: Decimal
    by: str = "card"


@orders.step
def check(run: Order) -> Paid:
    return Paid(run.total)
"""
MONDAY = f"""{TYPES}
orders.wait_for("paid", after=check)


@orders.step
def charge(check: Paid, paid: Paid) -> Paid:
    return Paid(check.amount + paid.amount, paid.by)


@orders.undo(charge)
def refund(charge: Paid, run: Order) -> list[Decimal]:
    return [charge.amount, run.total]
"""
TUESDAY = f"""{TYPES}
@orders.step
def charge(check: Paid) -> Paid:
    return check


@orders.step
def ship(charge: Paid):
    raise Fail("lost")


@orders.undo(charge)
def refund(charge: Paid, run: Order) -> list[Decimal]:
    return [charge.amount, run.total]


@orders.retired(since=2)
def paid(ctx) -> Paid:
    return ctx.wait_signal("paid", Paid)


@orders.retired(since=2, slug="charge")
def old_charge(check: Paid, paid: Paid) -> Paid:
    assert isinstance(paid, Paid)
    return Paid(check.amount + paid.amount, paid.by)
"""
WEDNESDAY = TUESDAY.replace("total: Decimal\n", "total: int\n")


def test_a_daemon_decodes_in_waits_undos_and_older_versions(tmp_path: Any, database: Any) -> None:
    client, setup = database.client, DaemonSetup(tmp_path, database.dsn)
    setup.module("orders", MONDAY)
    try:
        daemon = setup.serve()
        until(lambda: daemon.command("flows", "show", "orders").returncode == 0, 15)
        old = client.start_flow("orders", {"total": "1.5"})
        until(lambda: client.get_run(old.run_id).status == "waiting", 15)
        setup.module("orders", TUESDAY)
        for command in ("flows deploy orders --yes", "reload"):
            done = daemon.command(*command.split())
            assert done.returncode == 0, done.stderr
        new = client.start_flow("orders", {"total": 2})
        client.signal(old.run_id, "paid", {"amount": 3})
        first, second = (client.wait(run.run_id, timeout=20) for run in (old, new))
        assert (first.flow_slug, first.output) == (
            "orders", {"charge": {"amount": "4.5", "by": "card"}}
        )  # fmt: skip
        until(lambda: client.get_run(second.run_id).status == "undone", 20)
        undo = client.get_run(client.get_run(second.run_id).undo_run_id)
        assert undo.output == {"undo_charge": ["2", "2"]}
        bad = daemon.command("runs", "start", "orders", '{"total": []}')
        assert "orders: input.total: expected string or number, got array []" in bad.stderr
        setup.module("orders", WEDNESDAY)
        assert daemon.command("reload").returncode == 0
        refused = ("runs", "start", "orders", '{"total": "2"}')
        until(lambda: "expected integer" in daemon.command(*refused).stderr, 20)
    finally:
        setup.close()
