"""The lines that `pgflowd dev` prints of the daemon's log and of a changed flow."""

from __future__ import annotations

import json
import os
from datetime import datetime
from operator import itemgetter
from typing import Any

import pytest

from pgflowd import Flow
from pgflowd.cli.local.dev_log import line_of, log_pipe
from pgflowd.core.definition.shape import changes_between
from pgflowd.testing.until import until

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
AT = "2026-01-15T05:29:00.123Z"
OURS = {"time": AT, "process": "worker", "pid": 7}
CLOCK = f"{datetime.fromisoformat(AT).astimezone():%H:%M:%S}"


def shown(event: str, level: str = "info", **fields: Any) -> str | None:
    return line_of(json.dumps({**OURS, "level": level, "event": event, **fields}))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"event": "run.started", "run": RUN, "flow": "a"}, "run 7f3a9c12 a started"),
        (
            {"event": "run.completed", "run": RUN, "flow": "a", "took_s": 2.751},
            "run 7f3a9c12 a completed in 2.75s",
        ),
        ({"event": "task.log", "flow": "a", "task": "b#0", "text": "hello"}, "a/b: hello"),
        ({"event": "task.output", "flow": "a", "task": "b#7", "text": "hello"}, "a/b#7: hello"),
        (
            {"event": "task.timed_out", "flow": "a", "task": "b#0", "code": "E401",
             "error": "timed out after 5 s; it was at a.py:31 in b (attempt 1 of 3)"},
            "E401 task a/b#0 timed out after 5 s; it was at a.py:31 in b (attempt 1 of 3)",
        ),
        (
            {"event": "task.failed", "flow": "a", "task": "b#0", "error": "KeyError: 'url'"},
            "task a/b#0 failed: KeyError: 'url'",
        ),
        (
            {"event": "supervisor.problem", "level": "error", "code": "E201", "error": "no step",
             "place": "a.py:3", "next": "did you mean 'b'?"},
            "a.py:3  E201 no step; did you mean 'b'?",
        ),
        (
            {"event": "listener.lost", "level": "warning", "code": "E301", "error": "E301 gone"},
            "E301 gone",
        ),
        (
            {"event": "worker.warning", "level": "warning", "code": "W310", "text": "W310 it is 7"},
            "W310 it is 7",
        ),
        ({"event": "listener.regained", "attempts": 2}, "the database is back"),
    ],
)  # fmt: skip
def test_each_event_of_interest_is_one_line(fields, text):
    assert shown(**fields) == f"{CLOCK} {text}"


@pytest.mark.parametrize(
    "event", ["worker.poll", "child.started", "step.completed", "task.started"]
)
def test_other_events_are_not_shown(event):
    assert shown(event, "debug") is None
    assert shown(event) is None


@pytest.mark.parametrize(
    "line",
    [
        "Traceback: no record",
        "[1, 2]",
        "{}",
        '{"event": 1, "time": 2}',
        "[" * 100_000,
        json.dumps({"time": AT, "level": "warning", "event": "a module's own record"}),
        json.dumps({**OURS, "level": "info", "event": ["x"]}),
        json.dumps({**OURS, "level": ["x"], "event": "x"}),
        json.dumps({**OURS, "level": "info", "event": "x", "time": "0001-01-01T00:00:00+14:00"}),
    ],
    ids=itemgetter(slice(60)),
)
def test_a_line_that_is_not_a_log_record_is_shown_unchanged(line):
    assert line_of(line) == line


def test_lines_are_printed_until_the_pipe_is_closed():
    printed: list[str] = []

    with log_pipe(printed.append) as log:
        log.write(b"first\nsecond \xff\n")

    assert printed == ["first", "second \N{REPLACEMENT CHARACTER}"]


def test_a_process_that_keeps_the_pipe_open_does_not_block(monkeypatch):
    monkeypatch.setattr("pgflowd.cli.local.dev_log.READ_TIMEOUT_S", 0.1)
    printed: list[str] = []

    with log_pipe(printed.append) as log:
        kept = os.dup(log.fileno())
        log.write(b"first\n")

    until(lambda: printed == ["first"])
    os.close(kept)


def test_a_changed_shape_is_described_in_words():
    def made(*steps: str) -> Flow:
        flow = Flow("f")
        for step in steps:
            slug, _, deps = step.partition(":")
            flow.step(slug=slug, depends_on=[d for d in deps.split(",") if d])(lambda input: 1)
        return flow

    before = made("a", "b:a", "c:b").shape()

    assert changes_between(before, made("a", "b:a", "c:b", "d:a,b").shape()) == [
        "+ step d, after a and b"
    ]
    assert changes_between(before, made("a", "b", "c:a").shape()) == [
        "step b, first",
        "step c, after a",
    ]
    assert changes_between(before, made("a", "b:a").shape()) == ["- step c"]
