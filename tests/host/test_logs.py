"""Log records are written without waiting and never torn; dropped ones are counted."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys

import pytest
from support.covers import covers

from pgflowd.core.settings.sections import LoggingSettings
from pgflowd.host.logs import open_log

WRITER = """
import sys
from pgflowd.core.settings.sections import LoggingSettings
from pgflowd.host.logs import open_log
log = open_log(LoggingSettings(format=sys.argv[1], level="debug"), process="test")
"""


def written(form, code, **pipes):
    """The stderr of a process with this code."""
    command = [sys.executable, "-c", WRITER + code, form]
    return subprocess.run(command, stderr=subprocess.PIPE, check=True, timeout=30).stderr


def test_a_log_is_text_or_json_or_what_suits_stderr():
    code = "log.info('a.b', x=1)"

    assert b" info    a.b process=test pid=" in written("text", code)
    assert json.loads(written("json", code))["event"] == "a.b"
    assert json.loads(written("auto", code))["x"] == 1


@covers("newcomer 2")
def test_a_traceback_has_lines_on_a_terminal_and_is_one_record_elsewhere():
    code = "log.info('task.failed', traceback='Traceback:\\n  File \"a.py\"')"
    leader, follower = pty.openpty()
    command = [sys.executable, "-c", WRITER + code, "text"]
    subprocess.run(command, stderr=follower, check=True, timeout=30)
    os.close(follower)

    lines = os.read(leader, 4096).decode().splitlines()

    assert lines[1:] == ["    traceback: Traceback:", '        File "a.py"']
    for form in ("text", "json"):
        assert written(form, code).count(b"\n") == 1
    os.close(leader)


def test_levels_below_the_wanted_one_are_left_out():
    code = "log = open_log(LoggingSettings(format=sys.argv[1], level='warning'), process='x')\n"
    code += "log.info('no')\nlog.warning('yes')"

    assert b'"no"' not in written("json", code)
    assert b'"yes"' in written("json", code)


def test_fields_are_bound_and_secrets_hidden():
    code = "log.hide(['canary']); log.bind(flow='shop').info('a', error='is canary', token='t')"

    written_record = json.loads(written("json", code))

    assert (written_record["flow"], written_record["error"], written_record["token"]) == (
        "shop",
        "is ***",
        "***",
    )


def test_a_full_pipe_delays_no_writer_and_lost_records_are_counted():
    code = """
for number in range(2000):
    log.info("flood", number=number, text="x" * 200)
print("written", flush=True)
sys.stdin.readline()
log.info("after", lost=log.lost)
log.begin_process()
log.info("last", lost=log.lost)
"""
    command = [sys.executable, "-c", WRITER + code, "json"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process:
        assert process.stdout.readline() == b"written\n"
        data = b""
        while select.select([process.stderr], [], [], 0.2)[0]:
            data += os.read(process.stderr.fileno(), 65536)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        data += process.stderr.read()

    records = [json.loads(line) for line in data.splitlines()]
    flood = [record for record in records if record["event"] == "flood"]
    dropped = [record for record in records if record["event"] == "log.dropped"]
    assert len(flood) + sum(record["count"] for record in dropped) == 2000
    assert dropped
    assert dropped[-1]["error"].endswith("lost, since its reader is too slow")
    lost = 2000 - len(flood)
    assert [(each["event"], each["lost"]) for each in records[-2:]] == [
        ("after", lost),
        ("last", 0),
    ]


def test_records_of_many_processes_do_not_tear_each_other():
    code = """
import os
for _ in range(8):
    if os.fork() == 0:
        for number in range(50):
            log.info("line", number=number, text="x" * 3500)
        os._exit(0)
for _ in range(8):
    os.wait()
"""
    command = [sys.executable, "-c", WRITER + code, "json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        lines = process.stderr.read().splitlines()

    assert lines
    assert all(json.loads(line)["event"] in {"line", "log.dropped"} for line in lines)


def test_other_levels_of_loggers_replace_those_before():
    import logging

    settings = LoggingSettings(format="json", levels=(("noisy.a", "error"), ("noisy.b", "debug")))
    log = open_log(settings, process="x")
    before = [logging.getLogger(f"noisy.{each}").level for each in "abc"]

    log.retune(LoggingSettings(levels=(("noisy.b", "warning"), ("noisy.c", "info"))))

    after = [logging.getLogger(f"noisy.{each}").level for each in "abc"]
    assert before == [logging.ERROR, logging.DEBUG, logging.NOTSET]
    assert after == [logging.NOTSET, logging.WARNING, logging.INFO]


def test_our_stderr_stays_blocking_for_others():
    code = "import os\nlog.info('a')\nassert os.get_blocking(2)"

    assert written("json", code)


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_closed_stderr_is_not_an_error(form):
    code = "import os\nos.close(2)\n"
    code += "log2 = open_log(LoggingSettings(format=sys.argv[1]), process='x')\n"
    code += "log2.info('nobody hears')\n"

    written(form, code)


def test_the_journal_gets_fields(tmp_path, monkeypatch):
    import socket

    from pgflowd.host import logs

    journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    journal.bind(str(tmp_path / "journal"))
    monkeypatch.setattr(logs, "JOURNAL", str(tmp_path / "journal"))

    logs.open_log(LoggingSettings(format="journal"), process="x").info("run.started", run="7f3a")

    entry = journal.recv(65536)
    assert b"PGFLOW_RUN_ID\n\x04\0\0\0\0\0\0\x007f3a\n" in entry
    journal.close()
