"""
Random schedules of starts and ends against a pure model: runs that begin later, expire, wait for
others or for a key; that end, are retried, moved and deleted; clients whose transactions stay
open, or are undone; sweeps that do a part, or are cut off.

`Model` says what a sweep may make of a run, and what it must have made of it when all is swept.
SCHEDULES=10000 in the environment tries more of them, SEED=7 begins at another one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import psycopg
from support.covers import covers
from support.leases import LeaseDatabase

from pgflowd.testing.until import until

SCHEDULES, SEED = int(os.environ.get("SCHEDULES", "100")), int(os.environ.get("SEED", "0"))
STEPS = 25  # of a schedule
FINISH = """
create function finish(the_flow text, the_run uuid, is_good boolean, worker uuid) returns void
language plpgsql as $$
begin
  perform pgflow.start_tasks(the_flow, array(
    select message_id from pgflow.step_tasks where run_id = the_run), worker);
  if is_good then
    perform pgflow.complete_task(the_run, 'a', 0, '1');
  else
    perform pgflow.fail_task(the_run, 'a', 0, 'no');
  end if;
end $$
"""
START = """
select run_id, status from pgflowd.start(
  %(flow)s, '{}', %(run)s, start_at => now() + %(begins)s * interval '1 h',
  expires_at => now() + %(expires)s * interval '1 h',
  after => %(after)s::uuid[], after_mode => %(mode)s, singleton_key => %(key)s,
  on_conflict => %(conflict)s)
"""
MOVE = "select pgflowd.reschedule(%s, now() + %s * interval '1 h', now() + %s * interval '1 h')"
STATUSES = "select run_id, status from pgflowd.run_status where run_id = any (%s)"
PASS = """
update pgflowd.runs set start_at = start_at - %(by)s * interval '1 h',
       expires_at = expires_at - %(by)s * interval '1 h', due_at = due_at - %(by)s * interval '1 h'
 where run_id = any (%(runs)s)
"""
AGE = """
with core as (
  update pgflow.runs set started_at = now() - interval '9 days',
         completed_at = case when completed_at is not null then now() - interval '8 days' end,
         failed_at = case when failed_at is not null then now() - interval '8 days' end
   where run_id = %(run)s)
update pgflowd.runs
   set cancelled_at = case when cancelled_at is not null then now() - interval '8 days' end,
       expired_at = case when expired_at is not null then now() - interval '8 days' end
 where run_id = %(run)s
"""
PRUNE = "select pgflow.prune_data_older_than('7 days', array[%s])"
DEFINE = "select pgflow.create_flow(%s, 1), pgflow.add_step(%s, 'a')"
SHORT = {"scheduled": "planned", "blocked": "planned", "started": "open"}
CONFLICTS = ["wait", "wait", "wait", "wait", "existing", "reject", "replace"]
ENDED = {"completed", "failed", "cancelled", "expired", "gone"}


class Wish(NamedTuple):
    """What a start asked for. Times are hours of the model's clock; `nr` counts the starts."""

    nr: int
    flow: str
    begins: float
    expires: float | None
    after: tuple[UUID, ...]
    mode: str
    key: str | None
    conflict: str


@dataclass
class Model:
    """What was asked for, and what was seen of each run: planned, open, or how it ended."""

    now: float = 0.0
    wishes: dict[UUID, Wish] = field(default_factory=dict)
    status: dict[UUID, str] = field(default_factory=dict)
    ends: dict[UUID, set[str]] = field(default_factory=dict)  # all that were seen of a run
    told: set[UUID] = field(default_factory=set)  # who waited for no run when all was swept

    def saw(self, run: UUID, status: str) -> None:
        self.status[run] = status
        self.ends.setdefault(run, set()).update({status} & ENDED)

    def having(self, key: str | None, *statuses: str) -> set[UUID]:
        """The runs with a key that have one of these statuses."""
        known = self.status.items() if key is not None else ()
        return {run for run, now in known if self.wishes[run].key == key and now in statuses}

    def has_come(self, run: UUID) -> bool:
        return self.wishes[run].begins <= self.now

    def is_over(self, run: UUID) -> bool:
        expires = self.wishes[run].expires
        return expires is not None and expires <= self.now

    def may_follow(self, run: UUID) -> bool:
        """Whether each run before it has ended at some time, as it has to."""
        wish = self.wishes[run]
        ends = [self.ends[other] for other in wish.after]
        return all(seen and (wish.mode == "ended" or "completed" in seen) for seen in ends)

    def is_in_line(self, run: UUID) -> bool:
        """Whether only its key keeps a planned run from its beginning, for certain."""
        waits_for_none = not self.wishes[run].after or run in self.told
        return waits_for_none and self.has_come(run) and not self.is_over(run)

    def may_be_replaced(self, run: UUID, was: str) -> bool:
        wish = self.wishes[run]
        return wish.key is not None and any(
            other.key == wish.key and other.conflict == "replace" and name != run
            and self.has_come(name) and self.may_follow(name)
            and (was == "open" or other.nr > wish.nr)
            for name, other in self.wishes.items()
        )  # fmt: skip

    def may_become(self, run: UUID, was: str, becomes: str) -> bool:
        """Whether a sweep may have done this. What became of the others is known."""
        wish = self.wishes[run]
        if becomes == "expired":
            return was in ("planned", "open") and self.is_over(run)
        if becomes == "cancelled":
            has_failed = any(self.ends[other] - {"completed"} for other in wish.after)
            is_in_vain = was == "planned" and wish.mode == "completed" and has_failed
            begun = was == "planned" and self.has_come(run) and self.may_follow(run)
            lives = [was, "open"] if begun else [was]  # it may have begun in between
            return is_in_vain or any(self.may_be_replaced(run, life) for life in lives)
        if (was, becomes) != ("planned", "open") or self.is_over(run) or not self.has_come(run):
            return was == becomes
        line = [self.wishes[other].nr for other in self.having(wish.key, "planned")
                if self.is_in_line(other)]  # fmt: skip
        is_alone = self.having(wish.key, "open") <= {run}
        return self.may_follow(run) and is_alone and wish.nr <= min(line, default=wish.nr)

    def wrong(self) -> Iterable[str]:
        """What must not be when all is swept."""
        for run, status in self.status.items():
            wish = self.wishes[run]
            holders = self.having(wish.key, "open")
            if status in ("planned", "open") and self.is_over(run):
                yield f"{run} has not expired"
            if len(holders) > 1:
                yield f"{run} is not alone with its key"
            if status != "planned" or not {self.status[one] for one in wish.after} <= ENDED:
                continue
            if wish.mode == "completed" and any(
                "completed" not in self.ends[one] for one in wish.after
            ):
                yield f"{run} waits in vain"
            elif self.has_come(run) and (not holders or wish.conflict == "replace"):
                yield f"{run} has not begun"


class Schedule:
    """One model, one database, and a client whose transaction stays open for a while."""

    def __init__(self, db: LeaseDatabase, other: Any, flows: list[str], seed: int) -> None:
        self.db, self.other, self.flows = db, other, flows
        self.seed, self.chance = seed, random.Random(seed)
        self.model, self.log = Model(), [f"seed {seed}"]
        self.worker = db.worker(flows[0])
        self.aged: set[UUID] = set()  # pruned unless somebody needs them
        self.is_swept = True
        self.is_open = False  # the transaction; and what it has done so far
        self.becomes: dict[UUID, str] = {}
        self.started: dict[UUID, Wish] = {}
        self.keys: set[str] = set()

    def run(self) -> None:
        acts = [self.start] * 6 + [self.finish] * 3 + [self.cancel, self.retry, self.move]
        acts += [self.advance, self.delete, self.open_or_close, self.open_or_close]
        acts += [self.sweep] * 4 + [self.cut_a_sweep, self.sweep_all]
        for _ in range(STEPS):
            self.chance.choice(acts)()
        if self.is_open:
            self.open_or_close()
        self.sweep_all()
        for run in self.runs("planned", "open"):  # so that the next schedule has the database
            self.db.do("select pgflowd.cancel(%s, 'enough', 'me')", run)
        until(self.is_quiet, within_s=20)

    def runs(self, *statuses: str) -> list[UUID]:
        """The runs with one of these statuses that the open transaction has not locked."""
        return [
            run for run, status in self.model.status.items()
            if status in statuses and run not in self.becomes
        ]  # fmt: skip

    def pick(self, *statuses: str) -> UUID | None:
        found = self.runs(*statuses)
        return self.chance.choice(found) if found else None

    def look(self, act: str, becomes: dict[UUID, str] | None = None) -> None:
        """Read what has become of all runs; this act may have done that, or a sweep."""
        self.log.append(act)
        found = dict(self.db.conn.execute(STATUSES, [list(self.model.wishes)]).fetchall())
        was = dict(self.model.status)
        for run in self.model.wishes:
            status = found.get(run, "gone")
            self.model.saw(run, SHORT.get(status, status))
        for run, status in self.model.status.items():
            is_by_act = becomes is not None and becomes.get(run) == status
            if not is_by_act and status != was.get(run):
                is_right = self.model.may_become(run, was.get(run, "planned"), status)
                assert is_right, self.told(f"{run} was {was.get(run)}, and is {status}")

    def told(self, wrong: str) -> str:
        known = self.model.wishes.items()
        wishes = (f"{run} {self.model.status.get(run)} {wish}" for run, wish in known)
        return "\n".join([wrong, f"now {self.model.now}", *self.log, *wishes])

    def act(self, text: str, query: str, args: Any, becomes: dict[UUID, str]) -> None:
        """Do something by the open transaction, or at once."""
        self.is_swept = False
        if self.is_open and self.chance.random() < 0.5:
            self.other.execute(query, args)
            self.becomes |= becomes
            self.look(f"open: {text}")
        else:
            self.db.conn.execute(query, args)
            self.look(text, becomes)

    # -- clients ---------------------------------------------------------------------------

    def open_or_close(self) -> None:
        if not self.is_open:
            self.other.execute("begin")
            self.is_open = True
            return
        is_kept = self.chance.random() < 0.7
        self.other.execute("commit" if is_kept else "rollback")
        becomes, self.becomes = self.becomes, {}
        started, self.started = self.started, {}
        self.keys, self.is_open, self.is_swept = set(), False, False
        if is_kept:
            self.model.wishes |= started
        self.look("commit" if is_kept else "rollback", becomes if is_kept else {})

    def start(self) -> None:
        chance, model = self.chance, self.model
        is_other = self.is_open and chance.random() < 0.5
        known = [*self.runs("planned", "open", *ENDED - {"gone"})]
        known += list(self.started) if is_other else []
        begins = chance.choice([0, 0, 0, 1, 2])
        key = chance.choice([None, "a", "a", "b"])
        conflict = "wait" if key is None else chance.choice(CONFLICTS)
        if key in self.keys and not is_other and conflict in ("existing", "reject"):
            conflict = "wait"  # they would wait for the open transaction
        wish = Wish(
            nr=len(model.wishes) + len(self.started) + len(self.log),
            flow=chance.choice(self.flows),
            begins=model.now + begins,
            expires=chance.choice([None, None, model.now + begins + chance.choice([1, 2])]),
            after=tuple(chance.sample(known, min(len(known), chance.choice([0, 0, 1, 2])))),
            mode=chance.choice(["completed", "ended"]),
            key=key,
            conflict=conflict,
        )
        given = wish._asdict() | {
            "run": uuid4(),
            "key": key and f"{self.seed} {key}",
            "after": list(wish.after),
            "begins": begins or None,
            "expires": None if wish.expires is None else wish.expires - model.now,
        }
        conn = self.other if is_other else self.db.conn
        others = model.having(key, "planned", "open") | {
            run for run, other in self.started.items() if is_other and key and other.key == key
        }
        if is_other and key:
            self.keys.add(key)  # it has the key's lock until its end
        try:
            with conn.transaction():
                run, status = conn.execute(START, given).fetchone()
        except psycopg.errors.DatabaseError as error:
            assert error.sqlstate == "PF006" and conflict == "reject", self.told(str(error))
            assert others or not self.is_swept, self.told(f"nobody has {key}")
            self.look(f"refused {wish}")
            return
        if run != given["run"]:
            assert conflict == "existing" and (run in others or not self.is_swept), self.told("odd")
            self.look(f"existing {wish}")
            return
        ended = {name for name, end in self.becomes.items() if is_other and end in ENDED}
        taken = others - ended
        assert conflict not in ("existing", "reject") or not taken, self.told(f"{key} is taken")
        self.is_swept = False
        if is_other:
            self.started[run] = wish
            self.becomes |= {run: "open"} if status == "started" else {}
            self.look(f"open: start {run} {wish}")
        else:
            model.wishes[run] = wish
            self.look(f"start {run} {wish}")

    def finish(self) -> None:
        run, is_good = self.pick("open"), self.chance.random() < 0.6
        if run:
            end, flow = "completed" if is_good else "failed", self.model.wishes[run].flow
            query = "select finish(%s, %s, %s, %s)"
            self.act(f"{end} {run}", query, [flow, run, is_good, self.worker], {run: end})

    def cancel(self) -> None:
        if run := self.pick("planned", "open"):
            query = "select pgflowd.cancel(%s, 'enough', 'me')"
            self.act(f"cancel {run}", query, [run], {run: "cancelled"})

    def retry(self) -> None:
        run = self.pick("failed", "cancelled", "expired")
        wish = run and self.model.wishes[run]
        if not run or not wish or wish.key in self.keys:
            return
        others = self.model.having(wish.key, "planned", "open")
        if self.model.is_over(run):
            self.model.wishes[run] = wish._replace(expires=None)
        self.is_swept, was_swept = False, self.is_swept
        try:
            self.db.retry(run, cancelled=True)
        except psycopg.errors.DatabaseError as error:
            self.model.wishes[run] = wish
            is_taken = error.sqlstate == "PF006" and (others or not was_swept)
            assert is_taken or "never begun" in str(error), self.told(str(error))
            self.look(f"no retry of {run}")
        else:
            self.look(f"retry {run}", {run: "open"})

    def move(self) -> None:
        """Let a planned run begin and expire at other times."""
        if run := self.pick("planned"):
            begins = self.chance.choice([0, 1, 2])
            expires = begins + self.chance.choice([1, 3])
            now, wish = self.model.now, self.model.wishes[run]
            moved = wish._replace(begins=now + begins, expires=now + expires)
            self.model.wishes[run], self.is_swept = moved, False
            self.db.conn.execute(MOVE, [run, begins, expires])
            self.look(f"move {run} to {moved}")

    def advance(self) -> None:
        if not self.is_open:
            self.model.now += 1
            self.is_swept = False
            self.db.conn.execute(PASS, {"by": 1, "runs": list(self.model.wishes)})
            self.look("an hour")

    def delete(self) -> None:
        """Delete a run that has ended, or a whole flow."""
        if self.is_open:
            return
        self.is_swept = False
        if self.chance.random() < 0.2:
            (flow, *_) = self.flows
            self.db.do("select pgflow.delete_flow_and_data(%s)", flow)
            self.db.do(DEFINE, flow, flow)
            wishes = self.model.wishes.items()
            self.look(f"delete {flow}", {run: "gone" for run, wish in wishes if wish.flow == flow})
        elif run := self.pick(*ENDED - {"gone"}):
            self.db.conn.execute(AGE, {"run": run})
            self.db.do(PRUNE, self.model.wishes[run].flow)
            self.aged.add(run)
            self.look(f"prune {run}", dict.fromkeys(self.aged, "gone"))

    # -- sweeps ----------------------------------------------------------------------------

    def sweep(self) -> None:
        most, is_kept = self.chance.choice([1, 2, 200]), self.chance.random() < 0.8
        with self.db.conn.transaction(force_rollback=not is_kept):
            self.db.conn.execute("select pgflowd.process_due(%s)", [most])
        self.look(f"sweep {most}" if is_kept else "sweep in vain")

    def cut_a_sweep(self) -> None:
        after_ms = self.chance.randint(1, 6)
        self.db.do(f"begin; set local statement_timeout = {after_ms}")
        try:
            self.db.do("select pgflowd.process_due()")
            self.db.do("set local statement_timeout = 0")
        except psycopg.errors.QueryCanceled:
            self.db.do("rollback")
        else:
            self.db.do("commit")
        self.look(f"sweep of {after_ms} ms")

    def is_quiet(self) -> bool:
        done, next_s = self.db.row("select done, next_s from pgflowd.process_due()")
        return done == 0 and (next_s is None or next_s > 60)

    def sweep_all(self) -> None:
        if self.is_open:
            return
        until(self.is_quiet, within_s=20)
        self.look("sweep all")
        wrong = [*self.model.wrong()]
        assert wrong == [], self.told("\n".join(wrong))
        self.is_swept = True
        for run in self.runs("planned"):
            if {self.model.status[one] for one in self.model.wishes[run].after} <= ENDED:
                self.model.told.add(run)


@covers("G15", "G17", "G18")
def test_random_schedules_are_as_the_model_has_them(own: LeaseDatabase) -> None:
    own.do(FINISH)
    flows, other = ["first", "second"], own.connect()
    for flow in flows:
        own.do(DEFINE, flow, flow)
    for conn in (own.conn, other):
        conn.execute("set lock_timeout = '10 s'")  # one of them waits for the other for ever
    for seed in range(SEED, SEED + SCHEDULES):
        Schedule(own, other, flows, seed).run()
        own.do("truncate pgmq.a_first, pgmq.a_second")
    violations = own.rows("select * from pgflowd.violations()")
    assert [one for one in violations if one.invariant != "I8"] == []
