"""
Random flows with undos, against what handlers would have written down: workers complete, fail,
vanish and report late; people cancel, undo and retry; sweeps are cut off. Each run that is to be
undone ends as `undone` or `undo_failed` by itself, and undone is exactly what completed, in order.
The timelines of all runs add up to what is so, and a prune leaves no row of them.

SCHEDULES=1000 in the environment tries more of them, SEED=7 begins at another one.
"""

from __future__ import annotations

import os
import random
import uuid
from dataclasses import dataclass, field
from typing import Any

import psycopg
from sql.leases.test_pruning import rows_of_runs
from sql.leases.test_timeline import is_what_it_adds_up_to, timeline
from support.child_runs import process
from support.covers import covers
from support.database import Row
from support.leases import LeaseDatabase
from support.undo import Step, UndoWorld, nearest

SCHEDULES, SEED = int(os.environ.get("SCHEDULES", "25")), int(os.environ.get("SEED", "0"))
DEAD = "select status from pgflowd.run_status join pgflowd.dead_letters using (run_id)"
ACTIONS = 40  # of a schedule, before all is finished
Task = tuple[uuid.UUID, str, int]  # of a run that may be undone


def random_steps(chance: random.Random) -> list[Step]:
    steps: list[Step] = []
    for nr in range(chance.randint(1, 6)):
        earlier = [step.slug for step in steps]
        singles = [step.slug for step in steps if not step.is_map]
        is_map = bool(singles) and chance.random() < 0.35
        number = 1 if is_map else chance.randint(0, min(2, len(earlier)))
        undo = chance.choice(["completed", "completed", "attempted", None])
        options = {
            "maxAttempts": chance.randint(1, 2),
            "exhausted": "skip" if chance.random() < 0.15 else "fail",
            "of_undo": {"maxAttempts": chance.randint(1, 2)},
        }
        deps = chance.sample(singles if is_map else earlier, number)
        steps.append(Step(f"s{nr}", deps, undo, is_map, options))
    return steps


@dataclass
class Schedule:
    """One flow, its runs, their workers, and what their handlers have written down."""

    world: UndoWorld
    chance: random.Random
    runs: list[uuid.UUID] = field(default_factory=list)
    held: list[Row] = field(default_factory=list)  # tasks that workers have
    held_undos: list[Row] = field(default_factory=list)
    done: set[Task] = field(default_factory=set)  # with a result that the database took
    tried: set[Task] = field(default_factory=set)
    undone: dict[Task, int] = field(default_factory=dict)
    ended: dict[tuple[uuid.UUID, str, int], int] = field(default_factory=dict)  # undo tasks: when
    clock: int = 0
    is_calm: bool = False

    @property
    def db(self) -> LeaseDatabase:
        return self.world.db

    def act(self) -> None:
        acts = [self.start, self.claim, self.claim, self.report, self.report, self.vanish,
                self.sweep, self.sweep, self.claim_undo, self.report_undo, self.report_undo,
                self.vanish_undo, self.person]  # fmt: skip
        self.clock += 1
        self.chance.choice(acts)()

    def start(self) -> None:
        if len(self.runs) < 4:
            self.runs.append(self.db.start(self.world.flow, {}))

    def claim(self) -> None:
        number = self.chance.randint(1, 5)
        found = self.db.claim(self.world.flow, self.world.worker, number)
        self.held += found
        self.tried |= {(task.run_id, task.step_slug, task.task_index) for task in found}

    def report(self) -> None:
        if not self.held:
            return
        task = self.held.pop(self.chance.randrange(len(self.held)))
        try:
            if self.chance.random() < (0.95 if self.is_calm else 0.7):
                output = list(range(self.chance.randint(0, 3)))
                if self.db.complete(task, output) in ("completed", "late"):
                    self.done.add((task.run_id, task.step_slug, task.task_index))
            else:
                self.db.fail(task, "no")
        except psycopg.Error as error:
            assert error.sqlstate == "PF001", error

    def vanish(self) -> None:
        """A worker is gone: its lease lapses, and perhaps it reports all the same."""
        if self.held:
            task = self.chance.choice(self.held)
            self.lapse(task)
            if self.chance.random() < 0.5:
                self.held.remove(task)

    def lapse(self, task: Row) -> None:
        query = "update pgflowd.attempts set lease_until = now() where token = %s"
        self.db.do(query, task.token)

    def sweep(self) -> None:
        """Look at what is due; perhaps the sweeper is killed before its commit."""
        self.db.do("update pgflowd.runs set due_at = now() where due_at > now()")
        with self.db.conn.transaction() as transaction:
            self.db.rows("select * from pgflowd.process_due(%s)", self.chance.choice([1, 200]))
            self.db.rows("select * from pgflowd.sweep()")
            if not self.is_calm and self.chance.random() < 0.3:
                raise psycopg.Rollback(transaction)

    def claim_undo(self) -> None:
        found = self.db.claim(
            self.world.undo_flow, self.world.undo_worker, self.chance.randint(1, 4)
        )
        for task in found:
            self.check_order(task)
        self.held_undos += found

    def check_order(self, task: Row) -> None:
        """What came after this step has been undone, or has failed to be."""
        kind, _, slug = task.step_slug.partition("_")
        is_map = next(step.is_map for step in self.world.steps if step.slug == slug)
        after = [f"list_{slug}"] if kind == "undo" and is_map else [
            f"undo_{other}" for other in nearest(self.world.steps)[slug]
        ]  # fmt: skip
        query = "select count(*) from pgflow.step_tasks where run_id = %s and step_slug = any (%s)"
        ended = {key for key in self.ended if key[0] == task.run_id and key[1] in after}
        assert self.db.value(query, task.run_id, after) == len(ended)
        query = """
            select count(*) from pgflowd.attempts
             where run_id = (select undo_of from pgflowd.runs where run_id = %s)
               and ended_at is null
        """
        assert self.db.value(query, task.run_id) == 0

    def report_undo(self) -> None:
        if not self.held_undos:
            return
        task = self.held_undos.pop(self.chance.randrange(len(self.held_undos)))
        kind, _, slug = task.step_slug.partition("_")
        given = self.db.value("select input from pgflow.runs where run_id = %s", task.run_id)
        plan = given["plan"].get(slug, [])
        fails = kind == "undo" and self.chance.random() < (0.1 if self.is_calm else 0.3)
        try:
            if fails:
                verdict = self.db.fail(task, "no undo")
            else:
                verdict = self.db.complete(task, plan if kind == "list" else None)
        except psycopg.Error as error:
            assert error.sqlstate == "PF001", error
            return
        if verdict == "completed":
            self.ended[(task.run_id, task.step_slug, task.task_index)] = self.clock
        if verdict == "completed" and not fails and kind == "undo" and plan:
            original = (uuid.UUID(given["run_id"]), slug, plan[task.task_index])
            self.undone[original] = self.undone.get(original, 0) + 1

    def vanish_undo(self) -> None:
        if self.held_undos:
            task = self.held_undos.pop(self.chance.randrange(len(self.held_undos)))
            self.lapse(task)

    def person(self) -> None:
        if not self.runs:
            return
        run, act = self.chance.choice(self.runs), self.chance.randrange(5)
        queries = [
            "select pgflowd.cancel(%s, 'why', 'me')",
            "select pgflowd.cancel(%s, 'why', 'me', true)",
            "select pgflowd.undo(%s)", "select pgflowd.undo(%s, again => true)",
            "select pgflowd.retry(%s, 'me', true)",
        ]  # fmt: skip
        try:
            self.db.rows(queries[act], run)
        except psycopg.Error as error:
            assert error.sqlstate in ("PF003", "PF004", "PF005", "PF022"), error

    def finish(self) -> None:
        """Let all that is open end: workers that have tasks report or vanish, then all is calm."""
        self.is_calm = True
        self.chance.shuffle(self.held)
        while self.held:
            self.chance.choice([self.report, self.vanish])()
        for _ in range(300):
            self.clock += 1
            self.db.do(f"update pgmq.q_{self.world.undo_flow} set vt = now()")
            self.db.do(f"update pgmq.q_{self.world.flow} set vt = now()")
            self.sweep()
            self.claim()
            self.claim_undo()
            while self.held:
                self.report()
            while self.held_undos:
                self.report_undo()
            if not self.is_open():
                return
        raise AssertionError("it does not end by itself")

    def is_open(self) -> bool:
        query = """
            select exists (select from pgflow.runs where status = 'started')
                or exists (select from pgflowd.runs where undo_state in ('wanted', 'undoing'))
        """
        return bool(self.db.value(query))

    def judge(self) -> None:
        kinds = {step.slug: step.undo for step in self.world.steps}
        for run in self.runs:
            status = self.world.status(run)
            mine = {task for task in self.undone if task[0] == run}
            assert all(self.undone[task] == 1 for task in mine), "undone twice"
            has_effect = {task for task in self.done if task[0] == run and kinds[task[1]]}
            tried = {
                task for task in self.tried if task[0] == run and kinds[task[1]] == "attempted"
            }
            assert mine <= has_effect | tried, "undone what was not done"
            if status == "undone":
                assert mine >= has_effect, "not undone, and told as undone"
            else:
                assert status in ("undo_failed", "completed", "failed", "cancelled")
            if status == "undo_failed":
                assert mine != has_effect | tried
        assert self.db.rows("select * from pgflowd.violations()") == []
        assert set(self.db.column(DEAD)) <= {"failed", "undo_failed"}


@covers("G22")
def test_whatever_happens_undone_is_what_completed_and_each_undo_ends(own: LeaseDatabase) -> None:
    if own.history == "all":
        own.set("crash_limit", 1000)
    for seed in range(SEED, SEED + SCHEDULES):
        chance = random.Random(seed)
        options: dict[str, Any] = chance.choice([{}, {"onFailure": "keep"}, {"onCancel": "undo"}])
        world = UndoWorld(own, random_steps(chance), options)
        schedule = Schedule(world, chance)
        try:
            for _ in range(ACTIONS):
                schedule.act()
            schedule.finish()
            schedule.judge()
            for run in own.column("select run_id from pgflow.runs"):
                assert is_what_it_adds_up_to(own, run), (run, timeline(own, run))
            process(own)
            own.do("select pgflowd.prune('-1 s')")
            assert rows_of_runs(own) == {}
        except Exception as error:
            error.add_note(f"SEED={seed} SCHEDULES=1; {world.steps}")
            raise
