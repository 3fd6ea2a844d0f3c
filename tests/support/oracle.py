"""
Oracle: handlers write down what they do, where no fault of daemon or database can touch it.

    from oracle import note
    note(ctx, "start"); note(ctx, "tick"); note(ctx, "end", output)

Each event is a line of the file that the variable ORACLE names, written by one append.
`invariants.broken` compares all lines with what the database has kept.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

VARIABLE = "ORACLE"


def note(ctx: Any, event: str, output: Any = None) -> None:
    """Write down what the task does now."""
    task = [ctx.run_id, ctx.step_slug, ctx.task_index, ctx.token]
    line = json.dumps([*task, event, output, time.time()]) + "\n"
    number = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(number, line.encode())
    os.close(number)
