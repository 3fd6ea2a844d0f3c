"""
Waits replay: the calls of an engine whose tasks keep values and wait, executed by the database.

`WaitingJournal` is an engine that records each call of `execute_tasks`, and what each
task has kept before it. `replay_waits` makes the same calls as workers, sweepers and clients do:
claims, reports, checkpoints, signals, and the sweep of what is due. Time is moved by changing when
messages are visible and waits are due. It all happens in one transaction that is rolled back.
"""

from __future__ import annotations

from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from pgflowd.core.json import SQL_NULL, dumps
from pgflowd.core.waiting import RESERVED_PREFIXES, Checkpoint, Wait
from pgflowd.testing.engine import ClaimedRecord, Engine, Key, SentSignal, TaskRow
from support.sql_replay import FLOW, WORKER, snapshot_of, started

FAR_S = 10.0**6  # added to each wait, which is over when the engine says so

SHOW = """
update pgmq.q_random_flow as message
   set vt = clock_timestamp() + case when exists (
         select from pgflow.step_tasks as task
           join unnest(%(steps)s::text[], %(indexes)s::int[]) as wanted (step_slug, task_index)
             using (step_slug, task_index)
          where task.run_id = %(run)s and task.message_id = message.msg_id)
       then interval '-1 s' else interval '1 h' end
"""
CLAIM = """
select step_slug, task_index, attempt, input, flow_input is null, flow_input
  from pgflowd.claim(%s, %s, %s, '1 h')
"""
TOKEN = """
(select max(token) from pgflowd.attempts
  where run_id = %(run)s and step_slug = %(step)s and task_index = %(index)s)
"""
REPORT = f"""
select verdict, sqlstate, message
  from pgflowd.report(jsonb_build_array(%(element)s || jsonb_build_object('token', {TOKEN})),
                      array[%(output)s::text])
"""
SAVE = f"""
select pgflowd.checkpoint_save(%(run)s, %(step)s, %(index)s, {TOKEN}, %(name)s, %(data)s,
                               %(version)s)
"""
DROP = f"select pgflowd.checkpoint_drop(%(run)s, %(step)s, %(index)s, {TOKEN}, %(name)s)"
SIGNAL = "select pgflowd.signal(%s, %s, %s)"
MAKE_DUE = """
update pgflowd.waits as wait set due_at = now() - interval '1 h'
  from unnest(%s::text[], %s::int[]) as due (step_slug, task_index)
 where wait.run_id = %s and wait.step_slug = due.step_slug and wait.task_index = due.task_index
"""


class WaitingJournal(Engine):
    """An engine that records its calls; its signals are sent when it reaches their moments."""

    def __init__(self, shape: Any, flow_slug: str) -> None:
        super().__init__(shape, flow_slug)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self._kept: dict[Key, dict[str, Checkpoint]] = {}
        self._sent = 0

    def signal(self, signal: SentSignal) -> None:
        super().signal(signal)
        self._send_signals()

    def claim(self) -> list[ClaimedRecord]:
        records = super().claim()
        if records:
            self.calls.append(("claim", {"records": records}))
        return records

    def complete(self, key: Key, output: Any) -> TaskRow | None:
        self._report(key, "completed", output=dumps(output))
        return super().complete(key, output)

    def fail(
        self, key: Key, message: str, *, retry: bool = True, delay_s: float | None = None
    ) -> Any:
        self._report(key, "failed", error_message=message, retry=retry)
        return super().fail(key, message, retry=retry, delay_s=delay_s)

    def suspend(self, key: Key, wait: Wait) -> None:
        given = wait.as_json()
        if wait.in_s is not None:
            given["in_s"] = FAR_S + wait.in_s
        self._report(key, "suspended", wait=given)
        self.calls.append(("due", {"tasks": []}))  # frees it if its signal came before
        super().suspend(key, wait)

    def advance_to_next(self) -> bool:
        before = list(self.waiting())
        has_more = super().advance_to_next()
        due = [
            (task.step_slug, task.index)
            for task, wait in before
            if wait.due_at is not None and wait.due_at <= self.now
        ]
        if has_more:
            self._send_signals()
            self.calls.append(("due", {"tasks": due}))
        return has_more

    def _send_signals(self) -> None:
        sent = [each for each in self.signals if each.sent_at <= self.now]
        self.calls += [("signal", {"name": each.name, "payload": each.payload})
                       for each in sent[self._sent :]]  # fmt: skip
        self._sent = len(sent)

    def _report(self, key: Key, outcome: str, output: str | None = None, **fields: Any) -> None:
        """Record what the task has kept and dropped since the last call, then its report."""
        _, slug, index = key
        place = {"step": slug, "index": index}
        now, before = self.states[slug].tasks[index].saved, self._kept.get(key, {})
        for name in before.keys() - now.keys():
            self.calls.append(("drop", {**place, "name": name}))
        for name, kept in now.items():
            if before.get(name) is not kept and not name.startswith(RESERVED_PREFIXES):
                given = {"name": name, "data": dumps(kept.data), "version": kept.version}
                self.calls.append(("save", {**place, **given}))
        self._kept[key] = dict(now)
        element = {"run_id": key[0], "step_slug": slug, "task_index": index, "outcome": outcome}
        report = {"element": Jsonb({**element, **fields}), "output": output}
        self.calls.append(("report", {**place, **report}))


def replay_waits(
    conn: Connection[Any], shape: Any, run_id: str, input: Any, journal: WaitingJournal
) -> tuple[list[list[Any]], dict[str, Any]]:
    """Return the records of each claim, sorted, and a snapshot like the engine's."""
    with started(conn, shape, run_id, input):
        answers = [(name, _call(conn, run_id, name, given)) for name, given in journal.calls]
        snapshot = snapshot_of(conn, run_id)
        rows = [(name, cursor.fetchall()) for name, cursor in answers]
        refused = [row for name, found in rows for row in found if _is_refused(name, row)]
        assert refused == []
        records = [sorted(map(_record, found), key=repr) for name, found in rows if name == "claim"]
        return records, snapshot


def _call(conn: Connection[Any], run_id: str, name: str, given: dict[str, Any]) -> Any:
    values = {**given, "run": run_id}
    if name == "claim":
        records: list[ClaimedRecord] = given["records"]
        values["steps"] = [record.step_slug for record in records]
        values["indexes"] = [record.task_index for record in records]
        conn.execute(SHOW, values)
        return conn.execute(CLAIM, (FLOW, WORKER, len(records)))
    if name == "due":
        steps, indexes = [slug for slug, _ in given["tasks"]], [i for _, i in given["tasks"]]
        conn.execute(MAKE_DUE, (steps, indexes, run_id))
        return conn.execute("select * from pgflowd.process_due()")
    if name == "signal":
        return conn.execute(SIGNAL, (run_id, given["name"], Jsonb(given["payload"])))
    return conn.execute({"report": REPORT, "save": SAVE, "drop": DROP}[name], values)


def _is_refused(name: str, row: Any) -> bool:
    """Whether the database did not do what the engine did."""
    if name == "report":
        return row[1] is not None
    return name in ("save", "drop") and row != ("ok",)


def _record(row: Any) -> list[Any]:
    slug, index, attempt, input, is_null, flow_input = row
    return [slug, index, attempt, input, SQL_NULL if is_null else flow_input]
