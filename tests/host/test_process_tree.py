"""Tree: nothing of a process tree survives, however it is grown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgflowd.host import process_tree
from pgflowd.testing.until import until

PLANT = """
import os, subprocess, sys, time
pids = []
pids.append(subprocess.Popen(["sleep", "600"]).pid)
pids.append(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
nested = subprocess.Popen(["sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE)
pids += [nested.pid, int(nested.stdout.readline())]
print(*pids, flush=True)
time.sleep(600)
"""


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_tree_is_killed_with_all_sessions_in_it():
    root = subprocess.Popen(
        [sys.executable, "-c", PLANT], stdout=subprocess.PIPE, start_new_session=True
    )
    assert root.stdout is not None
    pids = [int(each) for each in root.stdout.readline().split()]

    assert process_tree.kill_tree(root.pid) == len(pids)

    root.wait(5)
    until(lambda: all(is_gone(pid) for pid in pids))


def test_a_tree_that_keeps_forking_is_frozen_first():
    forking = "import os\nwhile True:\n  if not os.fork(): os._exit(0)\n  os.waitpid(-1, 0)"
    root = subprocess.Popen([sys.executable, "-c", forking], start_new_session=True)
    until(lambda: process_tree.descendants(root.pid))

    process_tree.kill_tree(root.pid)

    root.wait(5)
    assert process_tree.descendants(root.pid) == []


@pytest.mark.parametrize("has_file", [True, False])
def test_both_ways_of_finding_descendants_know_our_child(monkeypatch, has_file):
    monkeypatch.setattr(
        process_tree, "_HAS_CHILDREN_FILE", has_file and process_tree._HAS_CHILDREN_FILE
    )
    child = subprocess.Popen(["sleep", "600"])

    assert child.pid in {stat.pid for stat in process_tree.descendants(os.getpid())}
    assert child.pid in process_tree.children()

    child.kill()
    until(lambda: is_gone(child.pid))
    assert process_tree.reap(child.pid) and process_tree.reap(child.pid)


def test_killing_what_is_gone_is_harmless():
    child = subprocess.Popen(["true"])
    child.wait()

    assert process_tree.kill_tree(child.pid) == 0
