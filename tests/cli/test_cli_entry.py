"""Ctrl-C ends a command quietly at any moment, even while modules are imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pgflowd.testing.until import until

SLOW = """
import os, time
open(os.environ["MARK"], "w").close()
while True:
    time.sleep(0.01)
"""
DEAF = """
import os, time, weakref

def callback(reference):
    open(os.environ["MARK"], "w").close()
    while True:
        time.sleep(0.01)

class Thing: pass

thing = Thing()
reference = weakref.ref(thing, callback)
del thing
while True:
    time.sleep(0.01)
"""
SLOW_TO_END = """
import os, signal, time

calls = []
getsignal = signal.getsignal

def slow(number):  # the third time, what to do at Ctrl-C is changed for the end
    calls.append(number)
    while len(calls) == 3:
        open(os.environ["MARK"], "w").close()
        time.sleep(0.01)
    return getsignal(number)

signal.getsignal = slow
"""
ENDLESS = """
import os, sys, time

class Last:
    def __del__(self, open=os.open, here=os.access, nap=time.sleep, mark=os.environ["MARK"]):
        open(mark, 64)  # O_CREAT
        while here(mark, 0):
            nap(0.01)

sys.last_of_all = Last()
"""
COMMANDS = [
    [sys.executable, "-m", "pgflowd", "runs", "list"],
    [str(Path(sys.executable).with_name("pgflowd")), "runs", "list"],
]


def begun(
    command: list[str], slow_module: str, directory: Path, text: str = SLOW
) -> subprocess.Popen[bytes]:
    """Start a command, in which an import of this module never ends; return when it has begun."""
    (directory / f"{slow_module}.py").write_text(text)
    mark = directory / "mark"
    environ = {**os.environ, "PYTHONPATH": str(directory), "MARK": str(mark)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ, cwd=directory
    )
    until(mark.exists, within_s=30)
    return process


@pytest.mark.parametrize("command", COMMANDS, ids=["module", "script"])
@pytest.mark.parametrize("module", ["click", "psycopg"])
def test_ctrl_c_during_an_import_ends_it_quietly(command, module, tmp_path):
    process = begun(command, module, tmp_path)

    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_ctrl_c_in_a_callback_which_drops_exceptions_ends_it_all_the_same(tmp_path):
    """Python's import system has such callbacks, for one."""
    process = begun(COMMANDS[0], "psycopg", tmp_path, DEAF)

    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == 130


def test_ctrl_c_while_a_command_is_over_but_not_yet_at_its_end_is_quiet(tmp_path):
    process = begun([*COMMANDS[0][:3], "--version"], "sitecustomize", tmp_path, SLOW_TO_END)

    process.send_signal(signal.SIGINT)

    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 130


def test_ctrl_c_while_python_ends_does_not_become_the_exit_code(tmp_path):
    process = begun([*COMMANDS[0][:3], "--version"], "sitecustomize", tmp_path, ENDLESS)

    process.send_signal(signal.SIGINT)
    (tmp_path / "mark").unlink()

    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 0


def test_ignored_interrupts_stay_ignored(tmp_path):
    """A shell starts background processes with ignored interrupts."""
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMANDS[0]]
    process = begun(command, "click", tmp_path)

    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)

    assert process.communicate(timeout=30) == (b"", b"")
    assert process.returncode == -signal.SIGTERM
