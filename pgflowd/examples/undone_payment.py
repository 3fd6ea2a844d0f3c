"""An undone payment: the parcel is lost, so the payment goes back, and then the reservation."""

from __future__ import annotations

import time
from typing import Any

from pgflowd import Fail, Flow

flow = Flow("undone_payment", max_attempts=3, base_delay=1, timeout=10)


@flow.step
def reserve(run: dict[str, Any]) -> dict[str, Any]:
    """Reserve what was ordered."""
    time.sleep(0.1)
    return {"order": run["order"], "amount": run["amount"]}


@flow.undo(reserve)
def release(reserve: dict[str, Any]) -> str:
    """Give it free, when the payment is undone."""
    return f"order {reserve['order']} is released"


@flow.step
def charge(reserve: dict[str, Any]) -> dict[str, Any]:
    """Stand in for a bank."""
    time.sleep(0.3)
    return {"payment": f"payment-{reserve['order']}", "amount": reserve["amount"]}


@flow.undo(charge, max_attempts=5)
def refund(charge: dict[str, Any]) -> str:
    """Take back what the step did: the parameter with its name is what it returned."""
    time.sleep(0.2)
    return f"{charge['payment']} is refunded"


@flow.step
def ship(charge: dict[str, Any]) -> str:
    """Fail for good, on purpose: the run is undone."""
    time.sleep(0.2)
    raise Fail("the parcel is lost")
