"""
Any two functions at once, over and over: no deadlock, and the invariants hold.

Each pair meets several times on a run of its own, two sessions leaving a barrier together.
"""

import itertools
import threading

import psycopg
import pytest
from psycopg.types.json import Jsonb
from support.contract import broken_invariants

ROUNDS = 4


def age(session):
    session.do(
        "update pgflow.step_tasks set queued_at = now() - interval '1 day',"
        " started_at = now() - interval '1 hour' where status = 'started'"
    )


def prepare(shared):
    """A run with everything: a map, retries, skips, a cascade, conditions, and aged tasks."""
    shared.flow(
        "f",
        ("m*", {"max_attempts": 2, "base_delay": 0}),
        ("a", {"max_attempts": 1}),
        ("b", {"max_attempts": 1, "when_exhausted": "skip"}),
        ("c", {"max_attempts": 1, "when_exhausted": "skip-cascade"}),
        "d: m a",
        "n*: m",
        ("e: b", {"required_input_pattern": {"b": {}}}),
        "g: c b",
    )
    shared.worker("f")
    old = shared.start("f", [])
    shared.do(
        "update pgflow.runs set status = 'failed', failed_at = now(), started_at = '-infinity'"
    )
    shared.do("update pgflow.runs set failed_at = now() - interval '2 days' where run_id = %s", old)
    shared.do("select pgmq.purge_queue('f')")
    shared.do("update pgflow.workers set last_heartbeat_at = 'infinity'")  # not to be pruned
    run = shared.start("f", [1, 2, 3, 4])
    shared.start_tasks("f", shared.read("f", qty=6))
    age(shared)
    shared.show("f")
    return run


def finish_map(session, run):
    for index in (3, 2, 1, 0):
        session.complete(run, "m", index, index)


ACTS = {
    "complete": lambda w, run: w.complete(run, "a", 1),
    "complete a map": finish_map,
    "fail": lambda w, run: w.fail(run, "a"),
    "retry": lambda w, run: w.fail(run, "m", "again", 1),
    "skip": lambda w, run: w.fail(run, "b"),
    "skip a cascade": lambda w, run: w.fail(run, "c"),
    "claim": lambda w, run: w.claim("f"),
    "recover": lambda w, run: w.value("select pgflow.requeue_stalled_tasks()"),
    "start": lambda w, run: w.start("f", [1]),
    "delete": lambda w, run: w.do("select pgflow.delete_flow_and_data('f')"),
    "prune": lambda w, run: w.do("select pgflow.prune_data_older_than(interval '1 day')"),
    "define": lambda w, run: w.flow("f", "m*", "h"),
    "compile": lambda w, run: w.value(
        "select pgflow.ensure_flow_compiled('f', %s, true)", Jsonb({"steps": []})
    ),
}
DELETING = {"delete", "compile"}
GONE = (
    psycopg.errors.ForeignKeyViolation,  # of a flow, a step or a run
    psycopg.errors.UndefinedTable,  # of the queue
)


def together(sessions, acts, run):
    """Let each session do its act, all at once; the errors they met."""
    barrier, errors = threading.Barrier(len(acts)), []

    def at_once(session, act):
        barrier.wait(timeout=10)
        try:
            act(session, run)
        except psycopg.Error as error:
            errors.append(error)

    threads = [
        threading.Thread(target=at_once, args=pair) for pair in zip(sessions, acts, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not any(thread.is_alive() for thread in threads)
    return errors


@pytest.mark.parametrize("first", ACTS)
def test_no_two_functions_deadlock(shared, first):
    sessions = [shared.session(autocommit=True) for _ in range(2)]
    names = list(ACTS)
    for second, _ in itertools.product(names[names.index(first) :], range(ROUNDS)):
        run = prepare(shared)

        errors = together(sessions, [ACTS[first], ACTS[second]], run)

        allowed = GONE if {first, second} & DELETING else ()
        assert all(isinstance(error, allowed) for error in errors), (second, errors)
        assert broken_invariants(shared) == [], second
        shared.do("select pgflow.delete_flow_and_data('f')")


def test_many_sessions_on_one_run_do_not_deadlock(shared):
    names = [name for name in ACTS if name not in DELETING | {"define"}]
    sessions = [shared.session(autocommit=True) for _ in names]
    for _ in range(ROUNDS):
        run = prepare(shared)

        errors = together(sessions, [ACTS[name] for name in names], run)

        assert errors == []
        assert broken_invariants(shared) == []
        shared.do("select pgflow.delete_flow_and_data('f')")
