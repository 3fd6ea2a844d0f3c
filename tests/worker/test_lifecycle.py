"""Runners and workers from birth to end: reuse, limits, drains, stops."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from support.covers import covers
from support.worker import PROFILE_T, is_gone

from pgflowd.core.messages import Drain, Failed, Heartbeat, Leaving, QuickStop, Ready, Wake
from pgflowd.core.settings.sections import LoggingSettings
from pgflowd.host.process_tree import in_session
from pgflowd.processes.worker import main as worker_main
from pgflowd.testing.until import until

MODULE = """
    import os, time, pathlib
    from pgflowd import Flow

    flow = Flow("flow", max_attempts={attempts}, base_delay=0, timeout=20)

    @flow.map
    def work(item, ctx):
        if "touch" in item:
            pathlib.Path(item["touch"]).touch()
        if "until" in item:
            while not os.path.exists(item["until"]):
                time.sleep(0.005)
        if item.get("gently"):
            while not ctx.stopping.is_set():
                time.sleep(0.005)
            return "stopped gently"
        time.sleep(item.get("sleep", 0))
        return os.getpid()
"""
TASKS = MODULE.format(attempts=3)
ONCE = MODULE.format(attempts=1)


@covers("row 64", "rule 36")
def test_a_runner_is_replaced_after_so_many_tasks(start_worker):
    worker = start_worker(TASKS, max_concurrency=1, max_tasks_per_runner=5)

    run = worker.start_run([{}] * 23)

    pids = worker.output(run)["work"]
    assert [len({*pids[n : n + 5]}) for n in range(0, 23, 5)] == [1] * 5
    assert len({*pids}) == 5


@covers("row 64", "rule 36")
def test_an_idle_runner_ends(start_worker):
    worker = start_worker(TASKS, runner_idle_s=0.3)

    worker.output(worker.start_run([{}]))

    until(lambda: not worker.runners, 3)


@covers("rule 36")
def test_with_isolation_task_each_task_has_a_runner_of_its_own(start_worker):
    worker = start_worker(TASKS, max_concurrency=2, isolation="task")

    pids = worker.output(worker.start_run([{}] * 10))["work"]

    assert len({*pids}) == 10


@covers("P22", "rule 36")
def test_never_more_runners_than_allowed_and_short_tasks_pass_a_long_one(start_worker, tmp_path):
    worker = start_worker(TASKS, max_concurrency=4)
    gate = tmp_path / "gate"
    most = 0

    long = worker.start_run([{"until": str(gate)}])
    short = [worker.start_run([{"sleep": 0.02}]) for _ in range(40)]

    def all_short_are_done() -> bool:
        nonlocal most
        most = max(most, len(worker.runners))
        return all(worker.status(run) == "completed" for run in short)

    until(all_short_are_done, 10)
    assert worker.status(long) == "started"
    assert most <= 4
    gate.touch()
    worker.completed(long)


@covers("P22")
def test_a_map_of_200_fills_runners_as_they_become_free(start_worker):
    worker = start_worker(TASKS, max_concurrency=4, batch_size=10)

    run = worker.start_run([{"sleep": 0.001}] * 200)

    assert len(worker.output(run)["work"]) == 200


RUDE = """
    import os, signal, threading, time
    from pgflowd import Flow

    flow = Flow("flow", base_delay=0, timeout=20)

    @flow.step
    def rude(run):
        exec(run["do"])
        return os.getpid()

    @flow.step
    def look(rude):
        return [os.getpid() != rude, "RUDE" in os.environ, os.getcwd() == "/",
                os.umask(0o22) == 0o77, signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN]
"""


@covers("row 50")
@pytest.mark.parametrize(
    "do",
    [
        "os.environ['RUDE'] = '1'",
        "os.chdir('/')",
        "os.umask(0o777)",
        "signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    ],
)
def test_the_next_task_sees_nothing_of_a_rude_one(start_worker, do):
    worker = start_worker(RUDE, max_concurrency=1)

    run = worker.start_run({"do": do})

    assert worker.output(run)["look"] == [True, False, False, False, False]


@covers("row 51")
def test_a_runner_that_grows_is_retired(start_worker):
    module = """
        import os
        from pgflowd import Flow
        flow = Flow("flow", base_delay=0, timeout=20)
        heap = []

        @flow.map
        def work(item):
            heap.append(bytearray(os.urandom(1)) * 100_000_000)
            return os.getpid()
    """
    worker = start_worker(module, max_concurrency=1)
    below = [worker.pid, worker.zygote]
    before_kb = [memory_kb(pid, "RssAnon") for pid in below]

    pids = worker.output(worker.start_run([{}] * 50), 30)["work"]

    # the first task's memory may stay, and two more fit; so each runner has four of fifty
    assert len({*pids}) == 13
    grown_kb = [memory_kb(pid, "RssAnon") - was for pid, was in zip(below, before_kb, strict=True)]
    assert max(grown_kb) < 10 * 1024


@covers("row 52")
def test_the_kernel_chooses_runners_first(start_worker):
    worker = start_worker(TASKS, oom_score_adj=321)
    worker.output(worker.start_run([{}]))

    def score(pid: int) -> int:
        return int(Path(f"/proc/{pid}/oom_score_adj").read_text())

    assert {score(pid) for pid in worker.runners} == {321}
    assert score(worker.zygote) == score(os.getpid())


def test_titles_show_what_each_process_does(start_worker, tmp_path):
    worker = start_worker(TASKS, max_concurrency=3)
    gate = tmp_path / "gate"
    run = worker.start_run([{"until": str(gate)}])

    until(lambda: worker.processes(f"pgflowd: runner flow/work#0 {run[-8:]}"))
    until(lambda: worker.title() == "pgflowd: worker flow 1/3")
    assert worker.processes("pgflowd: zygote flow")
    gate.touch()
    worker.completed(run)
    until(lambda: worker.processes("pgflowd: runner flow idle"))


@covers("row 12")
def test_an_idle_runner_that_dies_is_replaced_without_a_report(start_worker):
    worker = start_worker(TASKS)
    worker.output(worker.start_run([{}]))

    for pid in worker.runners:
        os.kill(pid, signal.SIGKILL)
    run = worker.start_run([{}])

    worker.completed(run, 2)
    assert worker.outcomes(run) == ["completed"]


@covers("newcomer 17")
def test_a_drain_tells_at_once_how_many_tasks_it_waits_for(start_worker, tmp_path, monkeypatch):
    monkeypatch.setattr(worker_main, "HEARTBEAT_S", 3600.0)
    worker = start_worker(TASKS)
    gate, begun = tmp_path / "gate", [tmp_path / "one", tmp_path / "two"]
    worker.start_run([{"touch": str(each), "until": str(gate)} for each in begun])
    until(lambda: all(each.exists() for each in begun))

    worker.send(Drain(30))

    def told() -> list[int]:
        beats = [each.numbers for each in worker.receive() if isinstance(each, Heartbeat)]
        return [numbers["running"] for numbers in beats if "running" in numbers]

    until(lambda: 2 in told(), 10)
    gate.touch()
    assert worker.ended() == 0


@covers("P11", "rule 33")
def test_a_drain_lets_running_tasks_finish_and_claims_nothing(start_worker, tmp_path):
    worker = start_worker(TASKS, max_concurrency=2)
    gate, begun = tmp_path / "gate", [tmp_path / "one", tmp_path / "two"]
    running = worker.start_run([{"until": str(gate), "touch": str(each)} for each in begun])
    until(lambda: all(each.exists() for each in begun))

    worker.send(Drain(10))
    until(lambda: not worker.processes("idle"))
    waiting = worker.start_run([{}])
    gate.touch()

    assert worker.ended() == 0
    assert worker.status(running) == "completed"
    assert worker.outcomes(waiting) == []
    assert worker.value("select stopped_at is not null from pgflow.workers")


def test_ctx_stopping_is_set_when_the_daemon_drains(start_worker, tmp_path):
    begun = tmp_path / "begun"
    worker = start_worker(TASKS)
    run = worker.start_run([{"gently": True, "touch": str(begun)}])
    until(begun.exists)

    assert worker.drain() == 0

    assert worker.output(run) == {"work": ["stopped gently"]}


@covers("P12", "row 24")
def test_a_task_longer_than_the_drain_is_released_unspent(start_worker, tmp_path):
    begun = tmp_path / "begun"
    worker = start_worker(ONCE)
    run = worker.start_run([{"sleep": 60, "touch": str(begun)}])
    until(begun.exists)

    assert worker.drain(within_s=0.3) == 0

    assert worker.status(run) == "started"
    assert worker.outcomes(run) == ["released"]
    query = "select status, attempts_count from pgflow.step_tasks"
    assert worker.conn.execute(query).fetchall() == [("queued", 0)]
    assert worker.value("select count(*) from pgmq.q_flow where vt <= now()") == 1


@covers("P13", "rule 32")
def test_a_quick_stop_in_a_drain_is_quick(start_worker, tmp_path):
    begun = tmp_path / "begun"
    worker = start_worker(ONCE)
    run = worker.start_run([{"sleep": 60, "touch": str(begun)}] * 3)
    until(lambda: len(worker.outcomes(run)) == 3)

    worker.send(Drain(30))
    worker.send(QuickStop())

    assert worker.ended(within_s=0.5 + 5) == 0
    assert worker.outcomes(run) == ["released"] * 3
    assert not in_session(worker.pid)


def test_tasks_that_wait_for_a_runner_are_given_back_at_a_stop(start_worker, tmp_path):
    worker = start_worker(ONCE, max_concurrency=1)
    begun = tmp_path / "begun"
    run = worker.start_run([{}] * 300 + [{"sleep": 30, "touch": str(begun)}] + [{}] * 20)
    until(begun.exists)

    worker.quick_stop()

    assert set(worker.outcomes(run)) <= {"completed", "released"}
    assert worker.value("select count(*) from pgflow.step_tasks where status = 'started'") == 0


@covers("row 9", "rule 39")
def test_when_the_zygote_dies_its_runners_do_and_their_tasks_are_reported(
    start_worker,
):
    worker = start_worker(TASKS)
    run = worker.start_run([{"sleep": 30}] * 4)
    until(lambda: len(worker.processes("#")) == 4)

    os.kill(worker.zygote, signal.SIGKILL)

    assert worker.ended(within_s=3) == 1
    assert worker.outcomes(run) == ["crashed"] * 4
    text = worker.attempts(run)[0][2]
    assert "its zygote ended (killed by signal 9, SIGKILL)" in text
    assert not in_session(worker.pid)


@covers("row 10", "rule 39")
def test_a_zygote_that_hangs_is_killed(start_worker, tmp_path):
    worker = start_worker(TASKS)
    worker.output(worker.start_run([{}]))

    os.kill(worker.zygote, signal.SIGSTOP)
    run = worker.start_run([{"sleep": 30}] * 4)  # and one runner that is idle

    assert worker.ended(within_s=8) == 1
    assert sorted(worker.outcomes(run)) == ["crashed", "released", "released", "released"]
    [text] = [text for _, outcome, text in worker.attempts(run) if outcome == "crashed"]
    assert "it did not answer for 5 s" in text


@covers("row 3")
def test_a_killed_worker_takes_everything_along(start_worker, tmp_path):
    worker = start_worker(TASKS)
    worker.start_run([{"sleep": 30}] * 3)
    until(lambda: len(worker.processes("#")) == 3)
    pids = [*worker.runners, worker.zygote]

    os.kill(worker.pid, signal.SIGKILL)

    until(lambda: all(is_gone(pid) for pid in pids), 1)


@covers("rule 35")
def test_a_worker_whose_channel_ends_kills_its_runners_and_ends(start_worker):
    worker = start_worker(TASKS)
    worker.start_run([{"sleep": 30}] * 3)
    until(lambda: len(worker.processes("#")) == 3)

    worker.child.channel.close()

    until(worker.child.has_ended, 2)
    assert not in_session(worker.pid)


@covers("rule 31")
def test_a_worker_ignores_sigterm_and_sigint(start_worker):
    worker = start_worker(TASKS)

    os.kill(worker.pid, signal.SIGTERM)
    os.kill(worker.pid, signal.SIGINT)

    assert worker.output(worker.start_run([{}]))


@covers("P19", "rule 40")
def test_a_deprecated_worker_drains_with_heartbeats_and_exits_10(start_worker, tmp_path):
    gate, begun = tmp_path / "gate", tmp_path / "begun"
    worker = start_worker(TASKS)
    run = worker.start_run([{"until": str(gate), "touch": str(begun)}])
    until(begun.exists)

    worker.conn.execute("update pgflow.workers set deprecated_at = now()")
    until(lambda: worker.records("worker.deprecated"), 3)
    renewed_at = worker.value("select last_heartbeat_at from pgflow.workers")
    until(lambda: worker.value("select last_heartbeat_at from pgflow.workers") > renewed_at)
    gate.touch()

    assert worker.ended() == 10
    assert isinstance(worker.all_received[-1], Leaving)
    assert worker.status(run) == "completed"


@covers("P19", "rule 40")
def test_a_worker_whose_row_is_gone_exits_10(start_worker):
    worker = start_worker(TASKS)

    worker.conn.execute("delete from pgflow.workers")
    worker.send(Wake())  # the next claim shows it, where no sweeper reads the row

    assert worker.ended() == 10
    assert isinstance(worker.all_received[-1], Leaving)


@covers("outside 5")
def test_a_worker_whose_row_is_gone_finishes_what_it_runs(start_worker, tmp_path):
    worker = start_worker(TASKS)
    begun, gate = tmp_path / "begun", tmp_path / "gate"
    run = worker.start_run([{"touch": str(begun), "until": str(gate)}])
    until(begun.exists)

    worker.conn.execute("delete from pgflow.workers")
    until(lambda: worker.records("worker.deprecated"), 5)
    leased_until = "select lease_until from pgflowd.attempts where ended_at is null"
    before = worker.value(leased_until)
    until(lambda: worker.value(leased_until) > before)
    gate.touch()

    assert worker.ended() == 10
    assert worker.outcomes(run) == ["completed"]
    assert worker.status(run) == "completed"


@covers("rule 39")
def test_a_runner_that_dies_before_it_is_ready_fails_no_task(start_worker):
    module = """
        import os, threading, time
        from pgflowd import Flow
        if os.path.exists("{gate}"): os._exit(7)
        threading.Thread(target=time.sleep, args=(0.01,)).start()
        flow = Flow("flow", max_attempts=1)

        @flow.step
        def work(run): return 1
    """
    gate = f"/tmp/pgflowd-gate-{os.getpid()}"
    worker = start_worker(module.format(gate=gate))
    Path(gate).touch()
    try:
        run = worker.start_run()
        assert worker.ended() == 70
    finally:
        Path(gate).unlink()

    assert set(worker.outcomes(run)) == {"released"}
    assert isinstance(worker.all_received[-1], Failed)


@covers("row 61")
def test_a_module_with_threads_is_imported_in_each_runner(start_worker):
    module = """
        import os, threading, time
        from pgflowd import Flow
        flow = Flow("flow")
        thread = threading.Thread(target=time.sleep, args=(600,), name="pinger", daemon=True)
        thread.start()

        @flow.step
        def work(run): return [t.name for t in threading.enumerate()]
    """
    worker = start_worker(module)

    assert worker.output(worker.start_run()) == {"work": ["MainThread", "pinger"]}
    assert "pinger" in worker.records("worker.warning")[0]["text"]


@covers("row 61")
def test_sockets_left_by_the_import_are_warned_about(start_worker):
    module = """
        import socket
        from pgflowd import Flow
        flow = Flow("flow")
        left = socket.socketpair()

        @flow.step
        def work(run): return 1
    """
    worker = start_worker(module)

    assert "2 sockets" in worker.records("worker.warning")[0]["text"]
    assert worker.output(worker.start_run()) == {"work": 1}


@covers("row 62", "rule 24")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("raise ValueError('bad')", "ValueError: bad"),
        ("def", "SyntaxError"),
        ("import sys; sys.exit(3)", "sys.exit()"),
        ("import os; os.kill(os.getpid(), 11)", "killed by signal 11, SIGSEGV"),
        ("import os; os._exit(0)", "it exited with code 0"),
        ("pass", "no flow"),
    ],
)
def test_a_module_that_cannot_be_imported_is_reported_and_exits_78(start_worker, line, text):
    worker = start_worker(line, ready=False)

    assert worker.ended() == 78
    assert worker.received(Failed).code in ("E210", "E212")
    assert text in worker.received(Failed).text


@covers("rule 2")
def test_a_stop_during_a_long_import_is_obeyed_at_once(start_worker):
    worker = start_worker("import time; time.sleep(60)", ready=False)

    worker.send(QuickStop())

    assert worker.ended(2) == 0
    assert worker.received(Ready) is None


@covers("row 49")
def test_a_flood_of_output_is_logged_in_part_and_the_rest_counted(start_worker):
    module = """
        import os
        from pgflowd import Flow
        flow = Flow("flow", timeout=60)

        @flow.step
        def work(run):
            print("first line", flush=True)
            block = b"x" * 99 + b"\\n"
            for _ in range(20_000): os.write(1, block * 1000)
            return "done"
    """
    worker = start_worker(module)
    before_kb = peak_kb(worker.pid)

    assert worker.output(worker.start_run(), 30) == {"work": "done"}
    assert peak_kb(worker.pid) - before_kb < 20 * 1024
    more = "bytes of output more"
    until(lambda: more in worker.records("task.output")[-1]["text"], within_s=20)
    message = worker.records("task.output")
    assert message[0]["text"] == "first line" and message[0]["task"] == "work#0"
    assert 9_000 < len(message) < 12_000


def memory_kb(pid: int, field: str) -> int:
    """A field of a process's memory, in KiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{field}:")).split()[1])


def peak_kb(pid: int) -> int:
    return memory_kb(pid, "VmHWM")


def test_what_handlers_log_carries_the_task(start_worker):
    module = """
        import logging, sys
        from pgflowd import Flow
        flow = Flow("flow")

        @flow.step
        def work(run, ctx):
            ctx.log.warning("careful with %s", "this")
            logging.getLogger("mine").info("hello")
            logging.getLogger("mine").debug("not this")
            ctx.log.debug("but this, at level debug")
            print("oops", file=sys.stderr)
    """
    worker = start_worker(module)

    run = worker.start_run()
    worker.completed(run)

    logged = [(r["logger"], r["level"], r["text"], r["run"]) for r in worker.records("task.log")]
    assert logged == [
        ("pgflowd.flow.work", "warning", "careful with this", run),
        ("mine", "info", "hello", run),
        ("pgflowd.flow.work", "debug", "but this, at level debug", run),
    ]
    assert [(r["stream"], r["text"]) for r in worker.records("task.output")] == [("stderr", "oops")]


@covers("friction 4")
def test_loggers_of_libraries_have_the_levels_of_the_config(start_worker):
    module = """
        import logging
        from pgflowd import Flow
        flow = Flow("flow")
        logging.getLogger("noisy").setLevel("DEBUG")  # as a library may; the config wins

        @flow.step
        def work(run):
            logging.getLogger("noisy.pool").info("not this")
            logging.getLogger("noisy.pool").warning("but this")
            logging.getLogger("quiet").debug("and this")
            logging.getLogger("other").debug("not this either")
    """
    levels = LoggingSettings(levels=(("noisy", "warning"), ("quiet", "debug")))
    worker = start_worker(module, settings=replace(PROFILE_T, logging=levels))

    worker.completed(worker.start_run())

    logged = [(r["logger"], r["level"], r["text"]) for r in worker.records("task.log")]
    assert logged == [("noisy.pool", "warning", "but this"), ("quiet", "debug", "and this")]


def test_a_handler_has_a_connection_of_its_own(start_worker, database):
    database.connect().execute("create table seen (attempt int)")
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=2, base_delay=0)

        @flow.step
        def work(run, ctx):
            ctx.conn().execute("insert into seen values (%s)", (ctx.attempt,))
            if ctx.attempt == 1: raise ValueError("rolled back")
    """
    worker = start_worker(module)

    worker.completed(worker.start_run())

    assert worker.conn.execute("select attempt from seen").fetchall() == [(2,)]


@covers("row 50")
def test_with_isolation_task_not_even_module_state_is_seen(start_worker):
    module = """
        import locale, string, sys
        from pgflowd import Flow
        flow = Flow("flow")
        seen, numbers = [], locale.setlocale(locale.LC_NUMERIC)
        other = "C.UTF-8" if numbers == "C" else "C"

        @flow.step
        def rude(run):
            seen.append(1)
            string.digits = "rude"
            sys.path.append("rude")
            locale.setlocale(locale.LC_NUMERIC, other)

        @flow.step(after=["rude"])
        def look(run):
            is_same = locale.setlocale(locale.LC_NUMERIC) == numbers
            return [seen, string.digits, "rude" in sys.path, is_same]
    """
    worker = start_worker(module, max_concurrency=1, isolation="task")

    assert worker.output(worker.start_run()) == {"look": [[], "0123456789", False, True]}


@covers("row 47")
def test_an_exception_that_cannot_be_pickled_is_reported_like_any_other(start_worker):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1)

        @flow.step
        def work(run):
            class Local(Exception):
                def __init__(self, lock): super().__init__("held"); self.lock = lock
            raise Local(__import__("threading").Lock())
    """
    worker = start_worker(module)

    run = worker.start_run()
    assert worker.failed(run, 5)

    assert worker.attempts(run)[0][2] == "Local: held"
