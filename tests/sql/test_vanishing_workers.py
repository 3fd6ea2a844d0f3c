"""
Workers that vanish: every run ends all the same, and each task counts once.

Several workers share two flows, forget every fourth task they claimed, and report others twice
or after another worker has taken them over; a sweep requeues the tasks that they forgot.
"""

import random
from concurrent.futures import ThreadPoolExecutor

from support.contract import broken_invariants, while_open

FLOWS = {
    "f": ("a", "m*: a", "n*: m", "b: a", "z: n b"),
    "g": (("m*", {"when_exhausted": "skip"}), "z: m", ("y", {"when_exhausted": "skip-cascade"})),
}
OUTPUTS = {"a": [1, 2, 3], "b": "B", "z": "Z", "y": None}


def careless_worker(shared, runs, seed):
    session, chance, taken = shared.session(autocommit=True), random.Random(seed), []
    for _ in while_open(session, runs):
        slug = chance.choice(list(FLOWS))
        taken += session.start_tasks(slug, session.read(slug, qty=3, vt=0))
        for task in chance.sample(taken, min(len(taken), 4)):
            if chance.random() < 0.75:
                report(session, task, fails=chance.random() < 0.2)
        taken = taken[-10:]


def report(session, task, *, fails):
    key = (task["run_id"], task["step_slug"])
    if fails:
        session.fail(*key, "boom", task["task_index"])
    else:
        session.complete(*key, OUTPUTS.get(key[1], task["task_index"]), task["task_index"])


def sweeper(shared, runs):
    """An hour passes between its sweeps, for each task without a live worker."""
    session = shared.session(autocommit=True)
    for _ in while_open(session, runs):
        session.do(
            "update pgflow.step_tasks set queued_at = queued_at - interval '1 day',"
            " started_at = started_at - interval '1 hour', requeued_count = 0"
            " where ctid = any (array("
            " select ctid from pgflow.step_tasks where status = 'started' for update skip locked))"
        )
        session.value("select pgflow.requeue_stalled_tasks()")


def test_every_run_ends_however_often_workers_vanish(shared):
    for slug, steps in FLOWS.items():
        shared.flow(slug, *steps, max_attempts=40, base_delay=0)
        shared.worker(slug)
    runs = [shared.start("f") for _ in range(8)] + [shared.start("g", [1, 2]) for _ in range(8)]

    with ThreadPoolExecutor(4) as threads:
        sweeping = threads.submit(sweeper, shared, runs)
        working = [threads.submit(careless_worker, shared, runs, seed) for seed in range(3)]
        for one in [sweeping, *working]:
            one.result(timeout=60)

    assert {shared.run(run)["status"] for run in runs} == {"completed"}
    assert [shared.run(run)["output"] for run in runs[:8]] == [{"z": "Z"}] * 8
    assert {str(shared.state(run, "n")["output"]) for run in runs[:8]} == {"[0, 1, 2]"}
    assert broken_invariants(shared) == []
    assert shared.queue("f") == shared.queue("g") == []
    assert shared.value("select max(attempts_count) from pgflow.step_tasks") > 1
