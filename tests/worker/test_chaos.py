"""Many things at once: deadlines in flight, killed workers, fork bombs, empty pockets."""

from __future__ import annotations

import os
import resource
import signal

import pytest
from support.covers import covers

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

MAP = """
    import os, subprocess, time
    from support.oracle import note
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=3, base_delay=0, timeout={timeout})

    def act(item, ctx):
        {body}

    @flow.map
    def work(item, ctx):
        note(ctx, "start")
        output = act(item, ctx)
        note(ctx, "end", output)
        return output
"""
R_S = 3.5  # the bound after a machine's death


@covers("P10", "row 60")
def test_tasks_that_end_at_their_deadline_get_one_verdict_each(start_worker):
    body = "time.sleep(0.995 + item * 0.00005)"
    module = MAP.format(timeout=1, body=body).replace("max_attempts=3", "max_attempts=1")
    module = module.replace("@flow.map", "@flow.map(when_exhausted='skip')")
    worker = start_worker(module, max_concurrency=25)

    runs = [worker.start_run([n]) for n in range(200)]

    until(lambda: all(worker.status(run) == "completed" for run in runs), 40)
    verdicts = [[each for each in worker.outcomes(run) if each != "released"] for run in runs]
    assert all(each in (["completed"], ["timed_out"]) for each in verdicts), verdicts
    assert {each for (each,) in verdicts} == {"completed", "timed_out"}


@covers("P21")
def test_two_workers_and_one_is_killed_halfway(start_worker):
    module = MAP.format(timeout=20, body="time.sleep(0.01); return item")
    first, second = start_worker(module), start_worker(module)
    runs = [first.start_run(list(range(10))) for _ in range(50)]
    query = "select count(*) from pgflow.step_tasks where status = 'completed'"
    until(lambda: first.value(query) >= 150, 20)

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not first.processes())
    first.conn.execute("select pgflowd.crashed(%s, 'killed')", (first.worker_id,))

    second.send(Wake())
    for run in runs:
        assert second.output(run, 20) == {"work": list(range(10))}
    twice = "select count(*) from pgflowd.attempts where outcome <> 'completed'"
    assert second.value(twice) <= 30


@covers("row 14")
def test_a_frozen_worker_loses_its_tasks_and_continues_when_it_wakes(start_worker, tmp_path):
    gate = tmp_path / "gate"
    body = f"open({str(tmp_path)!r} + f'/{{ctx.token}}', 'w').close()\n        " + (
        f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    )
    worker = start_worker(MAP.format(timeout=20, body=body))
    worker.was_frozen = True
    run = worker.start_run([1])
    until(lambda: worker.processes("#"))
    frozen = [worker.pid, *worker.processes("#")]

    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: worker.value("select pgflowd.recover_stalled('2 s')"), 5)
    other = start_worker(MAP.format(timeout=20, body=body))
    until(lambda: other.processes("#"), 5)
    for pid in frozen:
        os.kill(pid, signal.SIGCONT)

    until(lambda: not worker.processes("#"), 3)
    gate.touch()
    assert other.completed(run)
    assert worker.completed(worker.start_run([1]))


@covers("row 44")
def test_a_fork_bomb_is_frozen_and_killed_and_other_flows_continue(start_worker, tmp_path):
    """It is cancelled when it has grown: that takes as long as it takes, as does all beside it."""
    grown = tmp_path / "grown"
    body = f"""for _ in range(200):
            if not os.fork(): break
        else:
            open({str(grown)!r}, "w").close()
        while not os.path.exists({str(grown)!r}): time.sleep(0.2)
        while True:
            if not os.fork(): os._exit(0)
            os.wait()
            time.sleep(0.2)"""
    module = MAP.format(timeout=60, body=body)
    bomber, other = start_worker(module), start_worker(OTHER, "other")

    run = bomber.start_run([1])
    until(grown.exists, 60)
    beside = other.start_run({})

    assert other.output(beside, 60) == {"work": 1}
    bomber.conn.execute("select pgflowd.cancel(%s, 'a bomb', 'me')", (run,))
    until(lambda: bomber.outcomes(run) == ["late"], 60)
    until(lambda: len(bomber.processes()) <= 1, 60)


OTHER = """
    from pgflowd import Flow
    flow = Flow("other")

    @flow.step
    def work(run): return 1
"""


@covers("row 35")
def test_a_worker_out_of_descriptors_pauses_and_continues(start_worker):
    def poor() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    module = MAP.format(timeout=20, body="time.sleep(0.02); return item")
    worker = start_worker(module, max_concurrency=50, before=poor)

    run = worker.start_run(list(range(200)))

    assert worker.output(run, 20) == {"work": list(range(200))}
    assert set(worker.outcomes(run)) <= {"completed", "released"}
    assert any("could not be started" in r["error"] for r in worker.records("worker.error"))


@covers("row 95")
def test_the_message_of_a_long_task_is_not_read_again_and_again(start_worker, tmp_path):
    gate = tmp_path / "gate"
    body = f"while not os.path.exists({str(gate)!r}): time.sleep(0.01)"
    worker = start_worker(MAP.format(timeout=20, body=body))
    run = worker.start_run([1])
    until(lambda: worker.processes("#"))
    beats = "select last_heartbeat_at - started_at > '3 s' from pgflow.workers"

    until(lambda: worker.value(beats), 6)

    assert worker.value("select read_ct from pgmq.q_flow") <= 2
    gate.touch()
    assert worker.completed(run)


@covers("row 94")
def test_thousands_of_foreign_messages_do_not_hold_up_work(start_worker):
    worker = start_worker(MAP.format(timeout=20, body="return item"))
    worker.conn.execute(
        "select pgmq.send_batch('flow', array(select '{}'::jsonb from generate_series(1, 5000)))"
    )

    run = worker.start_run([1])

    assert worker.completed(run, 20)
    until(lambda: worker.value("select count(*) from pgmq.q_flow") == 0, 30)


@covers("row 96")
def test_odd_inputs_are_plain_data(start_worker):
    worker = start_worker(MAP.format(timeout=20, body="return item"))
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]
    given = [deep, 10**300, {"__proto__": 1, "$ref": "#/x", "constructor": None}, "\u2028</script>"]

    run = worker.start_run(given)

    assert worker.output(run) == {"work": given}


def killed_and_swept(worker) -> None:
    """Kill a worker; when all below it is gone, report it to the database, as the sweeper does."""
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not worker.processes())
    worker.conn.execute("select pgflowd.crashed(%s, 'killed')", (worker.worker_id,))


@pytest.mark.own_session
@covers("row 1")
@pytest.mark.parametrize("commits", [True, False], ids=["it commits", "it is rolled back"])
def test_a_worker_killed_inside_a_claim_loses_nothing(start_worker, commits):
    module = MAP.format(timeout=20, body="return item")
    worker = start_worker(module)
    run = worker.start("flow", [1])
    with worker.conn.transaction():
        worker.conn.execute("lock pgflow.step_tasks in share mode")
        worker.send(Wake())
        until(worker.waits_for_a_lock)
        killed_and_swept(worker)
        if not commits:
            until(lambda: not worker.waits_for_a_lock(), 3)  # the server looks each second
    until(lambda: not (commits and worker.waits_for_a_lock()))

    other = start_worker(module)

    def is_done() -> bool:
        other.value("select pgflowd.recover_stalled('2 s')")
        other.send(Wake())
        return other.status(run) == "completed"

    until(is_done, R_S + 2)
    *before, last = other.outcomes(run)
    assert last == "completed"
    assert before in ([], ["stalled"] if commits else [])  # [], if the server was quicker


@covers("row 2")
def test_a_worker_killed_after_its_claim_loses_nothing(start_worker):
    worker = start_worker(MAP.format(timeout=20, body="return item"))
    os.kill(worker.zygote, signal.SIGSTOP)
    run = worker.start_run([1])
    until(lambda: worker.value("select count(*) from pgflowd.attempts"))

    killed_and_swept(worker)

    other = start_worker(MAP.format(timeout=20, body="return item"))
    assert other.completed(run, 3)
    assert other.outcomes(run) == ["stalled", "completed"]


@covers("row 4")
def test_a_worker_killed_in_a_report_loses_nothing(start_worker):
    module = MAP.format(timeout=20, body="return item")
    worker = start_worker(module)
    run = worker.start("flow", [1])
    with worker.conn.transaction():
        worker.conn.execute("lock pgflow.runs in exclusive mode")
        worker.send(Wake())
        until(worker.waits_for_a_lock)
        os.kill(worker.pid, signal.SIGKILL)
    until(lambda: not worker.processes())
    worker.conn.execute("select pgflowd.crashed(%s, 'killed')", (worker.worker_id,))

    other = start_worker(module)
    assert other.completed(run, 5)
    assert other.outcomes(run).count("completed") == 1


def test_many_runners_need_no_larger_limit_of_descriptors(start_worker):
    def modest() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, 4096))

    body = "import resource; time.sleep(0.5); return resource.getrlimit(resource.RLIMIT_NOFILE)[0]"
    worker = start_worker(MAP.format(timeout=20, body=body), max_concurrency=60, before=modest)

    run = worker.start_run(list(range(60)))

    assert worker.output(run, 20) == {"work": [100] * 60}
    assert worker.outcomes(run) == ["completed"] * 60
