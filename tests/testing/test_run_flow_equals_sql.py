"""`run_flow` decides as the database does: random flows through both, compared in all they show."""

from __future__ import annotations

import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.generated_flows import random_flow, random_signals
from support.sql_replay import Journal, engine_snapshot, replay
from support.waits_replay import WaitingJournal, replay_waits

from pgflowd.testing.context import sent_signals
from pgflowd.testing.run_flow import TestedHandlers, execute_tasks, result_of

FLOWS = int(os.environ.get("PGFLOWD_RANDOM_FLOWS") or 300)
WAITING = -(-FLOWS // 5)  # whose calls take longer, since each is a worker's
RUN_ID = "00000000-0000-7000-8000-000000000001"


def first_seed() -> int:
    """Other flows each time; PGFLOWD_SEED repeats those of a run that failed."""
    return int(os.environ.get("PGFLOWD_SEED") or secrets.randbelow(10**6))


def test_random_flows_end_alike_in_this_process_and_in_the_database(database):
    assert endings(database, compare, FLOWS) == {"completed", "failed"}


def test_random_flows_that_wait_end_alike_in_this_process_and_in_the_database(database):
    found = endings(database, compare_waits, WAITING)

    assert "completed" in found <= {"completed", "failed", "started"}  # some wait for ever


def endings(database: Any, compare_one: Callable[[Any, int], str], flows: int) -> set[str]:
    """In which statuses so many random flows have ended, each of them alike in both."""
    connection, start = database.connect(), first_seed()
    say(f"seeds {start} to {start + flows - 1}; PGFLOWD_SEED={start} repeats them")
    found = Counter(compare_one(connection, seed) for seed in range(start, start + flows))
    say(f"endings: {found}")
    return set(found)


def differences(theirs: Any, ours: Any, place: str) -> Iterator[str]:
    """Each place where the database and the engine differ."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in theirs.keys() | ours.keys():
            yield from differences(theirs.get(key, "-"), ours.get(key, "-"), f"{place}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for index, (one, other) in enumerate(zip(theirs, ours, strict=True)):
            yield from differences(one, other, f"{place}[{index}]")
    elif theirs != ours:
        yield f"{place}: database {theirs!r}, engine {ours!r}"


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")  # pytest shows it where the test fails


def compare(connection: Any, seed: int) -> str:
    flow, run_input = random_flow(seed)
    journal = Journal(flow.shape(), flow.slug)
    journal.start(run_input, RUN_ID)
    execute_tasks(TestedHandlers(flow, journal))

    records, snapshot = replay(connection, flow.shape(), RUN_ID, run_input, journal.calls)

    ours = [
        sorted(([r.step_slug, r.task_index, r.input, r.flow_input] for r in given), key=repr)
        for name, given in journal.calls
        if name == "claim" and given
    ]
    result = result_of(journal)
    told = f"seed {seed}\n{result}\n{flow.shape()}\n{run_input}"
    assert list(differences(records, ours, "claims")) == [], told
    assert list(differences(snapshot, engine_snapshot(journal), "run")) == [], told
    return str(journal.status)


def compare_waits(connection: Any, seed: int) -> str:
    flow, run_input = random_flow(seed, may_wait=True)
    journal = WaitingJournal(flow.shape(), flow.slug)
    journal.start(run_input, RUN_ID)
    for signal in sent_signals(random_signals(seed)):
        journal.signal(signal)
    execute_tasks(TestedHandlers(flow, journal))

    result = result_of(journal)
    told = f"seed {seed}\n{result}\n{result.waits}\n{flow.shape()}\n{run_input}"
    try:
        records, snapshot = replay_waits(connection, flow.shape(), RUN_ID, run_input, journal)
    except Exception as error:
        raise AssertionError(told) from error

    ours = [
        sorted(([*r.key[1:], r.attempt, r.input, r.flow_input] for r in given["records"]), key=repr)
        for name, given in journal.calls
        if name == "claim"
    ]
    assert list(differences(records, ours, "claims")) == [], told
    assert list(differences(snapshot, engine_snapshot(journal), "run")) == [], told
    return str(journal.status)


@pytest.mark.parametrize("seed", range(3))
def test_a_seed_always_gives_the_same_flow(seed):
    assert random_flow(seed)[0].shape() == random_flow(seed)[0].shape()
