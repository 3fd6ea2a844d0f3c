"""The lines that `pgflowd dev` prints of the daemon's log and of a changed flow."""

from __future__ import annotations

import json
import os
from datetime import datetime
from operator import itemgetter
from typing import Any

import pytest
from support.covers import covers

from pgflowd import Flow
from pgflowd.cli.app import App
from pgflowd.cli.local.dev import log_pipe, print_record
from pgflowd.cli.terminal.texts import MOST_LINES
from pgflowd.core.definition.shape import changes_between
from pgflowd.testing.until import until

RUN = "019bc0de-4a51-7c02-9f6e-12ab7f3a9c12"
AT = "2026-01-15T05:29:00.123Z"
OURS = {"time": AT, "process": "worker", "pid": 7}
CLOCK = f"{datetime.fromisoformat(AT).astimezone():%H:%M:%S}"


Printed = pytest.CaptureFixture[str]


def shown(printed: Printed, event: str, level: str = "info", **fields: Any) -> str:
    print_record(App(), json.dumps({**OURS, "level": level, "event": event, **fields}))
    return printed.readouterr().out


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
        ({"event": "task.output", "flow": "a", "text": "of its lifespan"}, "a: of its lifespan"),
        (
            {"event": "task.timed_out", "flow": "a", "task": "b#0", "code": "E401",
             "error": "timed out after 5 s; it was at a.py:31 in b (attempt 1 of 3)"},
            "E401 task a/b timed out after 5 s; it was at a.py:31 in b (attempt 1 of 3)",
        ),
        (
            {"event": "task.crashed", "flow": "a", "task": "b#0", "code": "E402",
             "error": "the runner crashed: it exited with code 3"},
            "E402 task a/b failed: the runner crashed: it exited with code 3",
        ),
        (
            {"event": "task.failed", "flow": "a", "task": "b#0", "error": "KeyError: 'url'"},
            "task a/b failed: KeyError: 'url'",
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
        (
            {"event": "worker.error", "level": "warning", "flow": "a", "step": "b", "task": "b#1",
             "error": "a runner ended before it was ready"},
            "a/b#1: a runner ended before it was ready",
        ),
        (
            {"event": "child.killed", "level": "warning", "child": "sweeper", "reason": "silent"},
            "sweeper: silent",
        ),
        (
            {"event": "child.parked", "level": "error", "child": "worker a", "flow": "a",
             "code": "E306", "error": "a: the code has another shape"},
            "E306 a: the code has another shape",
        ),
    ],
)  # fmt: skip
def test_each_event_of_interest_is_one_line(fields, text, capsys):
    assert shown(capsys, **fields) == f"{CLOCK} {text}\n"


@covers("newcomer 1")
def test_below_a_failed_attempt_stand_the_last_calls_of_its_handler(capsys):
    trace = """Traceback (most recent call last):
  File "/opt/shop/flows/a.py", line 31, in b
    return ask(page)
  File "/opt/shop/model.py", line 7, in ask
    raise KeyError("url")
KeyError: 'url'
"""

    text = shown(
        capsys, "task.failed", flow="a", task="b#0", error="KeyError: 'url'", traceback=trace
    )

    assert text.splitlines() == [
        f"{CLOCK} task a/b failed: KeyError: 'url'",
        "         /opt/shop/flows/a.py:31 in b   return ask(page)",
        '         /opt/shop/model.py:7 in ask    raise KeyError("url")',
    ]


@covers("newcomer 1")
def test_of_an_error_of_very_many_lines_the_first_ones_and_the_last_are_shown(capsys):
    error = "\n".join(["RuntimeError: <html>", *(f"<p>{n}</p>" for n in range(300)), "it fails"])

    lines = shown(capsys, "task.failed", flow="a", task="b#0", error=error).splitlines()

    assert len(lines) == MOST_LINES
    assert lines[0].endswith("failed: RuntimeError: <html>")
    assert [line.strip() for line in lines[-2:]] == ["… 283 more lines", "it fails"]


@covers("newcomer 2")
def test_a_text_of_several_lines_is_indented_and_controls_no_terminal(capsys):
    text = "no answer\nTraceback:\n  File\x1b[31m red\x1b[0m \x1b]0;title\x07"

    lines = shown(capsys, "task.log", flow="a", task="b#0", text=text).splitlines()

    assert lines == [
        f"{CLOCK} a/b: no answer",
        "         Traceback:",
        "           File red \\x1b]0;title\\x07",
    ]


@pytest.mark.parametrize(
    "event", ["worker.poll", "child.started", "step.completed", "task.started"]
)
def test_other_events_are_not_shown(event, capsys):
    assert shown(capsys, event, "debug") == ""
    assert shown(capsys, event) == ""


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
def test_a_line_that_is_not_a_log_record_is_shown_unchanged(line, capsys):
    print_record(App(), line)

    assert capsys.readouterr().out == f"{line}\n"


def test_lines_are_printed_until_the_pipe_is_closed():
    printed: list[str] = []

    with log_pipe(printed.append) as log:
        log.write(b"first\nsecond \xff\n")

    assert printed == ["first", "second \N{REPLACEMENT CHARACTER}"]


def test_a_process_that_keeps_the_pipe_open_does_not_block(monkeypatch):
    monkeypatch.setattr("pgflowd.cli.local.dev.READ_TIMEOUT_S", 0.1)
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
        "step b: first, not after a",
        "step c: after a, not after b",
    ]
    assert changes_between(before, made("a", "b:a").shape()) == ["- step c"]
    assert changes_between(before, before) == []


@covers("newcomer 20")
def test_changed_options_are_named_as_in_the_code():
    def made(**options: Any) -> Any:
        flow = Flow("f")
        flow.step(slug="a", **options)(lambda input: 1)
        return flow.shape()

    changed = made(when_exhausted="skip", if_={"x": 1})

    assert changes_between(made(if_={"x": 2}), changed) == [
        "step a: when_exhausted is skip, not fail",
        'step a: if_ is {"x": 1}, not {"x": 2}',
    ]
    assert changes_between(changed, made()) == [
        "step a: when_exhausted is fail, not skip",
        'step a: if_ is unset, not {"x": 1}',
    ]
