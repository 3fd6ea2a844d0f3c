"""
Pictures: beside a failing test, the runs that it made with `run_flow`.

A hook of our pytest plugin. Passing tests show nothing.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pgflowd.testing.result import forget


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[Any],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        runs = forget()
        if report.failed and runs:
            pictures = "\n\n".join(run.picture() for run in runs)
            report.sections.append(("runs of flows", pictures))
    return report
