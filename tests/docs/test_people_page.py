"""The tutorial of docs/guides/people.md, with a real daemon."""

from __future__ import annotations

import shlex

from support.daemon import DaemonSetup
from support.pages import blocks_of

from pgflowd.testing.until import until

PAGE = "docs/guides/people.md"


def test_a_person_does_a_task_as_the_tutorial_says(tmp_path, database) -> None:
    tmp_path.chmod(0o755)
    setup = DaemonSetup(tmp_path, database.dsn)
    setup.module("contracts", blocks_of(PAGE, "python")[0])
    (console,) = blocks_of(PAGE, "console")
    start, listed, claim, complete, wait = (shlex.split(line)[2:] for line in console.splitlines())
    daemon = setup.serve()
    try:
        assert daemon.command(*start).returncode == 0
        until(lambda: "/review#0" in daemon.command(*listed).stdout, within_s=20)
        claimed = daemon.command(*claim)
        assert claimed.returncode == 0, claimed
        assert "/review#0  token " in claimed.stdout
        assert '{"draft": "a contract with ann"}' in claimed.stdout
        assert daemon.command(*complete).stdout.endswith("/review#0  completed\n")
        ended = daemon.command(*wait)
        assert (ended.returncode, "a contract with ann, sent" in ended.stdout) == (0, True), ended
    finally:
        setup.close()
