"""The checks of the chaos find each kind of error, and nothing when all is well."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import chaos  # noqa: F401  (which knows where the other houses are)
import chaos_checks
import chaos_daemons
import chaos_rights
import pytest
from chaos_environment import RUNS, TABLES, Window


class Told(SimpleNamespace):
    """A environment in which one run of `chain` was done by hand."""

    def write(self, *events: tuple[str, int, float, Any]) -> None:
        """Write the ledger: event, token, time, output."""
        task = [self.run_id, "chain", "only", 0]
        lines = [
            json.dumps([event, *task, token, "d0", 1, at, output])
            for event, token, at, output in events
        ]
        self.ledger.write_text("".join(f"{line}\n" for line in lines))

    def found(self) -> list[str]:
        return [trouble.split(" ")[0] for trouble in chaos_checks.in_the_end(self)]


@pytest.fixture
def checked(database, tmp_path) -> Told:
    conn, worker = database.connect(), uuid4()
    conn.execute(TABLES)
    for slug in RUNS:
        conn.execute("select pgflow.create_flow(%s, timeout => 5)", (slug,))
        conn.execute("select pgflow.add_step(%s, 'only')", (slug,))
    conn.execute("insert into pgflow.workers values (%s, 'chain', 'test')", (worker,))
    run_id = str(database.client.start_flow("chain", {}).run_id)
    claim = "select run_id, step_slug, task_index, token from pgflowd.claim('chain', %s, 1)"
    key = conn.execute(claim, (worker,)).fetchone()
    conn.execute("select pgflowd.complete(%s, %s, %s, %s, '7')", key)
    return Told(
        conn=lambda: conn,
        run_id=run_id,
        token=key[3],
        ledger=tmp_path / "ledger",
        directory=tmp_path,
        living={},
        troubles=[],
        windows=[],
        acknowledged={run_id: "chain"},
        in_doubt={},
        signalled=set(),
        tuned=[0],
        leftovers=list,
        rights=chaos_rights.rights(conn),
    )


def test_where_all_is_well_nothing_is_found(checked):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 7))

    assert checked.found() == []


def test_an_output_that_no_handler_returned_is_found(checked):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 8))

    assert checked.found() == ["I12"]


def test_an_execution_without_an_attempt_is_found_and_so_is_one_that_overlaps(checked):
    stranger = checked.token + 1
    checked.write(
        ("start", checked.token, 1.0, None),
        ("start", stranger, 1.5, None),
        ("end", checked.token, 2.0, 7),
    )

    assert checked.found() == ["I11", "I13"]


def test_an_overlap_after_a_standstill_is_counted_and_no_more(checked):
    checked.windows.append(Window("d0", 0.0, 1.2))
    checked.write(
        ("start", checked.token, 1.0, None),
        ("start", checked.token + 1, 1.5, None),
        ("end", checked.token, 2.0, 7),
    )

    assert checked.found() == ["I11"]
    assert chaos_checks.counts(checked)["overlaps after a freeze"] == 1


def test_an_execution_that_was_too_long_is_found(checked):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 60.0, 7))

    assert checked.found() == ["I14"]


def test_a_run_that_was_acknowledged_and_is_lost_or_ended_otherwise_is_found(checked):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 7))
    checked.acknowledged = {str(uuid4()): "chain", checked.run_id: "doomed"}

    assert checked.found() == ["G1:", "run"]


def test_a_bug_that_a_daemon_logged_is_found(checked, tmp_path):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 7))
    (tmp_path / "d0").mkdir()
    (tmp_path / "d0" / "d0-0.log").write_text(
        '{"event": "worker.error", "code": "E901"}\nTraceback (most recent call last):\n'
    )

    assert checked.found() == ["a", "a"]


@pytest.mark.parametrize(("whose", "lines", "found"), [(0, 2, 0), (1, 3, 3)])
def test_progress_and_output_of_another_attempt_are_found(checked, whose, lines, found):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 7))
    token = checked.token + whose
    printed = f"0.1 stdout {token} ticks\n0.2 stderr 7 ticks\n"
    tell = "update pgflowd.attempts set progress = %s, printed = %s, printed_lines = %s"

    checked.conn().execute(tell, (json.dumps({"text": str(token)}), printed, lines))

    assert len(checked.found()) == found


def test_a_daemon_that_is_listed_and_has_ended_is_found_and_one_that_lives_and_is_not(checked):
    checked.write(("start", checked.token, 1.0, None), ("end", checked.token, 2.0, 7))
    conn, lives = checked.conn(), {"id": str(uuid4()), "name": "d0", "host": "app1", "pid": 1}
    told = json.dumps({**lives, "version": "1", "up_s": 1, "state": "healthy", "flows": []})
    assert len(chaos_daemons.missing(conn, {lives["id"]: "d0"})) == 1

    conn.execute("select pgflowd.tell_daemon(%s)", (told,))
    assert chaos_daemons.missing(conn, {lives["id"]: "d0"}) == []
    assert chaos_daemons.troubles(conn, checked.living) == []  # it was not asked to end
    ended = {lives["id"]: "d0"}
    assert len(chaos_daemons.troubles(conn, ended)) == 1
    conn.execute("update pgflowd.daemons set alive_until = now() - interval '1 s'")
    assert chaos_daemons.in_the_end(conn, ended) == []
    assert len(chaos_daemons.missing(conn, {lives["id"]: "d0"})) == 1
