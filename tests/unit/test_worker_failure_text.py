"""The texts of tasks that did not end by themselves."""

from __future__ import annotations

import pytest

from pgflowd.core.failure import MAX_TRACEBACK_CHARS
from pgflowd.core.worker.events import Reaped
from pgflowd.core.worker.runner_ends import failure_of
from pgflowd.core.worker.state import EndCause
from pgflowd.core.worker.task import Task

TASK = Task("run", "summary", 0, 7, 1, 3, 5.0, b"{}", None)
STACK = """Thread 0x00007f1 (most recent call first):
  File "/opt/app/other.py", line 1 in other

Current thread 0x00007f2 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "/opt/app/flows/analyze.py", line 31 in summary
  File "/opt/app/lib/site-packages/pgflowd/processes/runner/main.py", line 90 in _call
"""


def test_e401_a_timeout_has_the_line_of_the_handler():
    report = failure_of(TASK, EndCause.TIMEOUT, Reaped(1, 9, 1.0, 2048, STACK))

    assert report.outcome == "timed_out"
    text = "timed out after 5 s; it was at /opt/app/flows/analyze.py:31 in summary"
    assert report.error_message == text
    assert report.traceback == STACK.rpartition('  File "/opt/app/lib')[0]
    assert (report.exit_signal, report.exit_code) == (9, None)


@pytest.mark.parametrize(
    ("status", "peak_kb", "text"),
    [
        (9, 4_089_446, "killed by signal 9, SIGKILL (out of memory?), peak 3.9 GiB"),
        (11, 20_480, "killed by signal 11, SIGSEGV, peak 20 MiB"),
        (3 << 8, 0, "it exited with code 3 before its outcome was whole"),
        (0, 0, "it exited with code 0 before its outcome was whole"),
        (60, 0, "killed by signal 60, unknown"),
    ],
)
def test_e402_a_crash_has_its_signal_and_memory(status, peak_kb, text):
    report = failure_of(TASK, None, Reaped(1, status, 0.0, peak_kb))

    assert report.error_message == f"the runner crashed: {text}"


def test_e403_e404_garbage_and_too_much_output_are_distinguished():
    for fault, outcome in ((("E404", "too large"), "failed"), (("E903", "noise"), "crashed")):
        report = failure_of(TASK, EndCause.BAD_FRAME, Reaped(1, 9), bad_frame=fault)
        assert (report.outcome, report.error_message) == (outcome, " ".join(fault))


def test_texts_can_be_stored():
    report = failure_of(TASK, None, Reaped(1, 9, stack="a\0b" * 20_000))

    assert "\0" not in report.traceback
    assert len(report.traceback) == MAX_TRACEBACK_CHARS
