"""The picture of a run: states, the next attempt beside them, the last error below, in colours."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from pgflowd.cli.terminal.run_view import painted
from pgflowd.cli.terminal.screen import Screen
from pgflowd.core.documents.runs import FailedAttempt, RunWithStates, StepState, StepTasks
from pgflowd.core.graph import draw
from pgflowd.core.run_graph import graph_of_run, last_error
from pgflowd.core.statuses import Outcome, RunStatus, StepStatus

NOW = datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
RUN_ID = UUID("019bc0de-4a51-7c02-9f6e-12ab7f3a9c12")


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def state(slug: str, status: str, started: float | None = None, ended: float | None = None):
    ends = {"completed": "completed_at", "failed": "failed_at", "skipped": "skipped_at"}
    times = dict.fromkeys(("completed_at", "failed_at", "skipped_at"))
    if ended is not None:
        times[ends[status]] = ago(ended)
    return StepState(
        step_slug=slug, status=StepStatus(status), output=None,
        error="boom" if status == "failed" else None,
        skip_reason=None, initial_tasks=1, remaining_tasks=0, remaining_deps=0, created_at=ago(9),
        started_at=None if started is None else ago(started), **times,
    )  # fmt: skip


def tasks(slug: str, *deps: str, **more) -> StepTasks:
    plain = StepTasks(slug, "single", list(deps), 1, 0, 0, 0, 0, 1, 3, 5, None, None)
    return replace(plain, **more)


def run(*states: StepState, status: str = "started") -> RunWithStates:
    return RunWithStates(
        RUN_ID, "f", RunStatus(status), {}, None, None, 1, ago(9), None, None,
        steps={one.step_slug: one for one in states},
    )  # fmt: skip


def note_of(step: StepTasks) -> str:
    (node,) = graph_of_run(run(state(step.step_slug, "started", 1)), [step], NOW).nodes
    return node.note


def detail_of(step: StepTasks, of: StepState) -> str:
    (node,) = graph_of_run(run(of), [step], NOW).nodes
    return node.detail


def test_a_running_step_shows_how_long_it_runs_and_its_attempt():
    step = tasks("a", running=1, attempts=2, running_since=ago(1))

    assert detail_of(step, state("a", "started", 1.4)) == "1s  2/3"
    assert note_of(step) == "attempt 2 of 3, timeout in 4s"
    assert note_of(replace(step, running_since=ago(9))) == "attempt 2 of 3, past its timeout"


def test_a_waiting_step_shows_when_it_is_next():
    waiting = tasks("a", queued=1, attempts=1, next_at=NOW + timedelta(seconds=7))

    assert detail_of(waiting, state("a", "started", 1)) == "waits"
    assert note_of(waiting) == "attempt 2 of 3, next in 7s"
    assert note_of(tasks("a", queued=1, attempts=0, next_at=ago(1))) == "waits for a worker"


def test_a_map_shows_how_many_of_its_tasks_are_done():
    step = tasks("a", tasks=20, completed=12, running=2, step_type="map", running_since=ago(1))

    assert detail_of(step, state("a", "started", 3)) == "3s  12/20"
    done = replace(step, completed=20, running=0, running_since=None)
    assert detail_of(done, state("a", "completed", 3, 1)) == "2s  20 tasks"


def test_an_ended_step_shows_how_long_it_took():
    assert detail_of(tasks("a"), state("a", "completed", 3, 2.7)) == "300ms"
    assert detail_of(tasks("a", attempts=3), state("a", "failed", 70, 5)) == "1m05s  3/3"
    assert detail_of(tasks("a"), state("a", "skipped", 3, 1)) == "skipped"
    assert detail_of(tasks("a"), state("a", "created")) == "created"


def test_steps_of_a_cancelled_run_are_cancelled_not_failed():
    (node,) = graph_of_run(
        run(state("a", "failed", 3, 1), status="cancelled"), [tasks("a")], NOW
    ).nodes

    assert node.status == "cancelled"


TRACE = """Traceback (most recent call last):
  File "/opt/venv/lib/python3.12/site-packages/pgflowd/processes/runner/main.py", line 9, in call
  File "flows/analyze.py", line 31, in summary
  File "/usr/lib/python3.12/ssl.py", line 1295, in recv_into
TimeoutError: model did not answer
"""


def test_steps_that_ran_when_their_run_failed_are_cancelled_and_go_on_no_longer():
    failed = replace(
        run(state("a", "started", 8.5), state("b", "started", 8), status="failed"), failed_at=ago(5)
    )

    nodes = graph_of_run(failed, [tasks("a", running=1), tasks("b", queued=1)], NOW).nodes

    assert [(node.status, node.detail, node.note) for node in nodes] == [
        (RunStatus.CANCELLED, "3.5s", ""),
        (RunStatus.CANCELLED, "3s", ""),
    ]


def test_the_last_error_is_of_the_last_attempt_that_failed():
    def failed_attempt(outcome: str, attempt: int, text: str | None) -> FailedAttempt:
        ended = ago(10 - attempt)
        return FailedAttempt(
            "summary",
            0,
            attempt,
            attempt,
            3,
            Outcome(outcome),
            None,
            text,
            TRACE,
            ago(20),
            ended,
            None,
        )

    troubles = [
        failed_attempt("failed", 1, "no"),
        failed_attempt("timed_out", 2, None),
        failed_attempt("released", 3, ""),
    ]

    assert last_error(run(), troubles, NOW) == (
        "summary, attempt 2, 8s ago: timed out", TRACE,
    )  # fmt: skip
    ended_with_its_run = replace(troubles[1], step_slug="other", outcome=Outcome.LATE)
    assert last_error(run(), [*troubles, ended_with_its_run], NOW) == (
        "summary, attempt 2, 8s ago: timed out", TRACE,
    )  # fmt: skip
    assert last_error(run(state("a", "failed", 3, 1)), [], NOW) == ("a: boom", None)
    assert last_error(run(), [], NOW) is None


@pytest.mark.parametrize("unicode", [True, False])
@pytest.mark.parametrize("width", [None, 100, 40])
def test_colours_change_nothing_but_colours(unicode, width):
    states = [
        state("x", "completed", 3, 1), state("b", "failed", 2, 1), state("c", "started", 1),
        state("d", "created"),
    ]  # fmt: skip
    steps = [tasks("x"), tasks("b", "x"), tasks("c", "x", running=1), tasks("d", "b", "c")]
    graph = graph_of_run(run(*states), steps, NOW)

    coloured = painted(graph, Screen(colour=True, unicode=unicode, width=width))

    for code, status in (("32", "✔" if unicode else "+"), ("31", "✖" if unicode else "x"),
                         ("36", "▶" if unicode else ">")):  # fmt: skip
        assert coloured.count(f"\x1b[{code}m{status} ") == 1
        coloured = coloured.replace(f"\x1b[{code}m", "")
    assert coloured.replace("\x1b[0m", "") == draw(graph, width=width, utf8=unicode)
