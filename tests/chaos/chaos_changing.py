"""
A flow of the chaos whose code changes: `changing(number)` is what it is in this state.

The code of each third state has no handlers for steps that it lacks, so it cannot serve every
version; the others serve all.
"""

from __future__ import annotations

import random
from typing import Any

from support import changing_flows

from pgflowd import Context, Flow

NAME = "changing"
STATES = 9
MODULE = "from chaos_changing import changing\nflow = changing({})\n"


def changing(number: int) -> Flow:
    """The flow in this state; one of its options differs, too."""
    options = {"timeout": 5, "max_attempts": 100 + number, "base_delay": 0}
    keeps_all = number % 3 != 2
    return changing_flows.changing(NAME, number, execute, keeps_all=keeps_all, **options)


def execute(ctx: Context, got: list[Any]) -> list[Any]:
    from chaos_flows import done, work  # which only a daemon can import

    work(ctx, random.random() / 5)
    done(ctx, [ctx.step_slug, *got])
    return got
