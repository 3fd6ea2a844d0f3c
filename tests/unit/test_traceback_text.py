"""Where the user's own code was: in tracebacks of Python, and in stacks of killed runners."""

from __future__ import annotations

from support.covers import covers

from pgflowd.core.failure import last_calls, place_of, user_calls, without_the_runner

STACK = """Thread 0x00007f1 (most recent call first):
  File "/opt/app/other.py", line 1 in other

Current thread 0x00007f2 (most recent call first):
  File "/usr/lib/python3.11/re/__init__.py", line 166 in match
  File "/opt/app/flows/analyze.py", line 31 in summary
  File "/opt/app/lib/site-packages/pgflowd/processes/runner/main.py", line 90 in _call
"""
STARTED_BY = """  File "/opt/app/venv/bin/pgflowd", line 8 in <module>
"""
AWAITED = """
Current task (most recent call first):
  File "/usr/lib/python3.11/asyncio/tasks.py", line 639 in sleep
  File "/opt/app/flows/analyze.py", line 40 in fetch
  File "/opt/app/flows/analyze.py", line 31 in summary
"""
TRACEBACK = """Traceback (most recent call last):
  File "/opt/app/flows/analyze.py", line 20, in ask
    answer = {}["label"]
             ~~^^^^^^^^^
KeyError: 'label'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/opt/app/flows/analyze.py", line 31, in summary
    return ask(page)
           ^^^^^^^^^
  File "/opt/app/pgflowd/flows/model.py", line 22, in ask
    raise ValueError("no label") from error
  File "/usr/lib/python3.11/json/decoder.py", line 353, in raw_decode
    obj, end = self.scan_once(s, idx)
ValueError: no label
"""
GROUP = """  + Exception Group Traceback (most recent call last):
  |   File "/opt/app/flows/analyze.py", line 8, in summary
  |     async with asyncio.TaskGroup() as group:
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/opt/app/flows/analyze.py", line 4, in fetch
    |     raise OSError("refused")
    | OSError: refused
    +------------------------------------
"""


def places(text: str | None) -> list[str]:
    return [call.place for call in user_calls(text)]


@covers("newcomer 1")
def test_the_calls_of_a_traceback_are_those_of_its_last_exception():
    assert [(call.place, call.code) for call in user_calls(TRACEBACK)] == [
        ("/opt/app/flows/analyze.py:31 in summary", "return ask(page)"),
        ("/opt/app/pgflowd/flows/model.py:22 in ask", 'raise ValueError("no label") from error'),
    ]
    assert user_calls(None) == []
    assert place_of("E403 the output is not JSON") == ""


@covers("newcomer 1")
def test_the_calls_of_a_group_are_those_of_its_exceptions():
    assert [(call.place, call.code) for call in user_calls(GROUP)] == [
        ("/opt/app/flows/analyze.py:8 in summary", "async with asyncio.TaskGroup() as group:"),
        ("/opt/app/flows/analyze.py:4 in fetch", 'raise OSError("refused")'),
    ]


@covers("newcomer 1")
def test_a_line_that_cannot_be_read_and_repeated_calls_are_no_code():
    text = """Traceback (most recent call last):
  File "<string>", line 1, in a
  File "/opt/gone.py", line 2, in b
  File "/opt/x.py", line 3, in c
  [Previous line repeated 900 more times]
RecursionError: too deep
"""

    assert [(call.place, call.code) for call in user_calls(text)] == [
        ("/opt/gone.py:2 in b", None),
        ("/opt/x.py:3 in c", None),
    ]


def test_the_place_in_a_stack_is_in_the_handler_not_in_what_started_the_daemon():
    asleep = STACK.replace("/opt/app/flows/analyze.py", "/usr/lib/python3.11/asyncio/runners.py")

    assert place_of(STACK + STARTED_BY) == "/opt/app/flows/analyze.py:31 in summary"
    assert place_of(asleep + STARTED_BY) == ""
    assert places(asleep + STARTED_BY + AWAITED) == [
        "/opt/app/flows/analyze.py:31 in summary",
        "/opt/app/flows/analyze.py:40 in fetch",
    ]


def test_the_place_in_a_flow_that_is_installed_is_its_handler():
    flow = "/opt/app/venv/lib/python3.11/site-packages/shop/flows.py"
    lib = "/opt/app/venv/lib/python3.11/site-packages/requests/api.py"
    stack = STACK.replace("/opt/app/flows/analyze.py", flow)
    awaited = AWAITED.replace("/opt/app/flows/analyze.py", flow, 2).replace(flow, lib, 1)
    asleep = stack.replace(flow, "/usr/lib/python3.11/asyncio/runners.py")

    assert place_of(stack.replace("/usr/lib/python3.11/re/__init__.py", lib)) == (
        f"{flow}:31 in summary"
    )
    assert place_of(asleep + awaited) == f"{flow}:31 in summary"


def test_a_stack_is_kept_without_what_led_to_the_handler():
    kept = without_the_runner(STACK + STARTED_BY + AWAITED)

    assert kept == STACK.rpartition("  File")[0] + AWAITED
    assert without_the_runner("") == ""


@covers("newcomer 1")
def test_the_last_calls_are_few_and_say_more_than_the_error():
    deep = "".join(f'  File "/opt/a.py", line {line}, in f\n    g({line})\n' for line in range(9))

    assert [call.line for call in last_calls(deep, "boom")] == ["6", "7", "8"]
    assert last_calls(STACK, "timed out; it was at /opt/app/flows/analyze.py:31 in summary") == []
