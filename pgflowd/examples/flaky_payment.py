"""A flaky payment: the bank fails once, the printer hangs once, and the run still completes."""

from __future__ import annotations

import time
from typing import Any

from pgflowd import Context, Flow

flow = Flow("flaky_payment", max_attempts=3, base_delay=1, timeout=10)


@flow.step
def reserve(run: dict[str, Any]) -> dict[str, Any]:
    """Reserve what was ordered."""
    time.sleep(0.1)
    return {"order": run["order"], "amount": run["amount"]}


@flow.step
def charge(reserve: dict[str, Any], ctx: Context) -> dict[str, Any]:
    """Fail at the first attempt, on purpose."""
    if ctx.attempt == 1:
        raise ConnectionError("the bank hung up")
    return {"charged": reserve["amount"], "attempt": ctx.attempt}


@flow.step(timeout=1, base_delay=0)
def receipt(charge: dict[str, Any], ctx: Context) -> str:
    """Hang at the first attempt, on purpose: it is killed after its timeout of 1 s."""
    if ctx.attempt == 1:
        time.sleep(600)
    return f"paid {charge['charged']}"
