"""What is said of a run while somebody views it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from pgflowd.core.documents.runs import RunWithStates, StepState
from pgflowd.core.statuses import RunStatus, StepStatus
from pgflowd.core.timeline import announcement

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def run(status: RunStatus, **steps: StepStatus) -> RunWithStates:
    states = {
        slug: StepState(
            slug, each, None, f"{slug} is broken", None, 1, 0, 0, NOW, NOW, None, NOW, None
        )
        for slug, each in steps.items()
    }  # fmt: skip
    run_id = UUID("00000000-0000-0000-0000-0000deadbeef")
    return RunWithStates(
        run_id, "shop", status, {}, None, None, 1, NOW, None, NOW if status.is_end else None,
        steps=states,
    )  # fmt: skip


def test_ends_and_failures_are_told_and_nothing_else():
    begun = run(RunStatus.STARTED, a=StepStatus.STARTED)
    failing = run(RunStatus.STARTED, a=StepStatus.FAILED, b=StepStatus.FAILED)
    failed = run(RunStatus.FAILED, a=StepStatus.FAILED)

    assert announcement(None, failed) == ""  # who opens the page reads it
    assert announcement(begun, begun) == ""
    assert announcement(begun, failing) == "failed: a, b"
    assert announcement(failing, failing) == ""
    assert announcement(begun, failed) == "run deadbeef failed: a: a is broken"
    assert announcement(failed, failed) == ""
    assert announcement(failed, begun) == ""


def test_of_many_steps_a_few_are_named():
    many = {f"s{number}": StepStatus.FAILED for number in range(5)}
    before = run(RunStatus.STARTED)

    assert announcement(before, replace(run(RunStatus.STARTED, **many))) == (
        "failed: s0, s1, s2 and 2 more"
    )
