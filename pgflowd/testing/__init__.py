"""For tests of flows: execute them in this process, or on a scratch database."""

from __future__ import annotations

from pgflowd.testing.context import FakeContext, StartedChild, fake_context
from pgflowd.testing.engine import EndedWait
from pgflowd.testing.run_flow import FlowRun, StepRun, TaskRun, run_flow
from pgflowd.testing.started import assert_not_started, assert_started, deploy

__all__ = [
    "EndedWait",
    "FakeContext",
    "FlowRun",
    "StartedChild",
    "StepRun",
    "TaskRun",
    "assert_not_started",
    "assert_started",
    "deploy",
    "fake_context",
    "run_flow",
]
