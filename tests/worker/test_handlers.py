"""Handlers that go wrong, in every way they can (docs/background/failures.md, part D)."""

from __future__ import annotations

import hashlib

import pytest
from support.covers import covers
from support.worker import failure, is_gone, one_step

from pgflowd.testing.until import until


@covers("row 39")
def test_a_sleeper_is_killed_at_its_timeout_and_its_line_is_reported(start_worker):
    worker = start_worker(one_step("time.sleep(600)", timeout=1))

    run = worker.start_run()
    outcome, text = failure(worker, run)

    assert outcome == "timed_out"
    assert text.startswith("timed out after 1 s; it was at ") and text.endswith(" in work")
    assert "time.sleep" not in worker.value("select traceback from pgflowd.attempts")
    assert "in work" in worker.value("select traceback from pgflowd.attempts")


@covers("P7", "rule 37", "row 39")
def test_an_endless_loop_is_dead_before_it_is_reported(start_worker, tmp_path):
    body = """
        open(run["pid"], "w").write(str(os.getpid()))
        while True: pass
    """
    worker = start_worker(one_step(body, timeout=2))
    pid_file = tmp_path / "pid"

    run = worker.start_run({"pid": str(pid_file)})
    assert worker.failed(run, 10)

    assert is_gone(int(pid_file.read_text()))
    assert worker.outcomes(run) == ["timed_out"]


@covers("row 40")
def test_a_computation_in_c_leaves_its_stack(start_worker):
    worker = start_worker(one_step("import re; re.match(r'(a+)+$', 'a' * 40 + 'b')", timeout=1))

    run = worker.start_run()

    assert failure(worker, run)[1].endswith(" in work")
    assert "Current thread" in worker.value("select traceback from pgflowd.attempts")


@covers("row 41", "P8", "row 42")
def test_a_handler_that_ignores_all_signals_dies_with_its_whole_tree(start_worker, tmp_path):
    body = """
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            try: signal.signal(number, signal.SIG_IGN)
            except OSError: pass
        pids = [os.getpid()]
        pids.append(subprocess.Popen(["sleep", "600"], start_new_session=True).pid)
        nested = "sleep 600 & setsid sleep 600 & wait"
        pids.append(subprocess.Popen(["sh", "-c", nested], process_group=0).pid)
        daemon = "setsid sh -c 'sleep 600 > /dev/null 2>&1 & echo $!'"  # its parents end
        pids.append(int(subprocess.run(["sh", "-c", daemon], capture_output=True).stdout))
        open(run["pids"], "w").write(" ".join(map(str, pids)))
        while True: time.sleep(1)
    """
    worker = start_worker(one_step(body, timeout=3))
    pid_file = tmp_path / "pids"

    run = worker.start_run({"pids": str(pid_file)})
    assert worker.failed(run, 10)

    assert all(is_gone(int(pid)) for pid in pid_file.read_text().split())
    assert not worker.processes("sleep")


@covers("row 43")
def test_a_daemon_left_behind_is_killed_before_the_outcome_is_reported(start_worker):
    body = """
        daemon = subprocess.Popen(["setsid", "sh", "-c", "sleep 600 & sleep 600"])
        while open(f"/proc/{daemon.pid}/comm").read() != "sh\\n":  # the kernel names it last
            time.sleep(0.001)
        return daemon.pid
    """
    worker = start_worker(one_step(body), max_concurrency=1)

    run = worker.start_run()
    pid = worker.output(run)["after"]

    assert is_gone(pid)
    assert worker.outcomes(run) == ["completed"] * 2
    [reported] = [record["error"] for record in worker.records("worker.error")]
    expected = "the task left child processes (sh) behind; they are killed with its runner"
    assert reported == expected


STACK_OVERFLOW = """
        import ctypes, resource
        most = resource.getrlimit(resource.RLIMIT_STACK)[1]
        resource.setrlimit(resource.RLIMIT_STACK, (2**16, most))  # before Python would notice
        deeper = ctypes.CFUNCTYPE(None)(lambda: deeper())
        deeper()
"""


@covers("row 45", "P9", "rule 38")
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("os._exit(0)", "it exited with code 0 before its outcome was whole"),
        ("os._exit(3)", "it exited with code 3"),
        ("os.abort()", "killed by signal 6, SIGABRT"),
        ("os.kill(os.getpid(), 11)", "killed by signal 11, SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "killed by signal 9, SIGKILL (out of memory?), peak "),
        ("import ctypes; ctypes.string_at(0)", "killed by signal 11, SIGSEGV"),
        (STACK_OVERFLOW, "killed by signal 11, SIGSEGV"),
        ("os.closerange(3, 100); time.sleep(60)", "E903 the runner's socket was closed"),
    ],
)
def test_a_crash_names_signal_or_exit_code(start_worker, body, text):
    worker = start_worker(one_step(body))

    outcome, message = failure(worker, worker.start_run())

    assert outcome == "crashed"
    assert text in message


def test_a_segfault_leaves_the_line_it_happened_in(start_worker):
    worker = start_worker(one_step("import ctypes; ctypes.string_at(0)"))

    assert failure(worker, worker.start_run())[1].endswith(" in work")


@covers("row 11", "P6", "E402")
def test_a_crash_is_retried_and_worker_and_zygote_keep_their_pids(start_worker):
    worker = start_worker(one_step("ctx.attempt == 1 and os.kill(os.getpid(), 9)", attempts=2))
    zygote = worker.zygote

    run = worker.start_run()

    assert worker.completed(run)
    assert worker.outcomes(run) == ["crashed", "completed", "completed"]
    assert worker.zygote == zygote
    [crashed] = worker.records("task.crashed")
    assert crashed["code"] == "E402"
    assert "SIGKILL" in crashed["error"]


RUDE_ERRORS = """
    class Rude(Exception):
        def __str__(self): raise RuntimeError("no")
    class Ruder(Exception):
        def __str__(self): sys.exit()
    raise {error}
"""


@covers("row 46", "row 45")
@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("ValueError('no such page')", "ValueError: no such page"),
        ("Rude()", "Rude: (str() of it raised RuntimeError)"),
        ("Ruder()", "Ruder: (str() of it raised SystemExit)"),
        ("ValueError('x' * 20_000_000)", "ValueError: xxx"),
        ("ValueError('a\\0b\\ud800c')", "ValueError: a\ufffdb\ufffdc"),
        ("ValueError('\\U0001F600' * 16000)", "ValueError: \U0001f600"),
        ("SystemExit(3)", "SystemExit: 3"),
        ("KeyboardInterrupt()", "KeyboardInterrupt"),
        ("Fail('never')", "never"),
    ],
)
def test_whatever_is_raised_is_reported_cleaned_and_cut(start_worker, error, text):
    """`sys.exit` is a failure like any other."""
    worker = start_worker(one_step(RUDE_ERRORS.format(error=error)))

    outcome, message = failure(worker, worker.start_run())

    assert outcome == "failed"
    assert message.startswith(text) and len(message) <= 4000


def test_fail_is_not_retried_and_retry_after_chooses_its_time(start_worker):
    worker = start_worker(one_step("raise Fail('never') if ctx.attempt == 2 else RetryAfter(0)", 3))

    run = worker.start_run()
    assert worker.failed(run, 5)

    assert worker.outcomes(run) == ["failed", "failed"]


@pytest.mark.parametrize("delay", ["1e-05", "1e300"])
def test_a_retry_may_be_wished_for_in_a_moment_or_in_an_age(start_worker, delay):
    body = f"if ctx.attempt == 1 and run: raise RetryAfter({delay})"
    worker = start_worker(one_step(body, attempts=2))

    run = worker.start_run(True)

    until(lambda: worker.outcomes(run)[:1] == ["failed"])
    assert worker.attempts(run)[0][2].startswith("asked for a retry in ")


@covers("newcomer 16")
def test_the_last_attempt_promises_no_retry(start_worker):
    worker = start_worker(one_step("raise RetryAfter(0)", 2))

    run = worker.start_run()
    assert worker.failed(run, 5)

    asked = "asked for a retry in 0 s"
    assert [attempt[2] for attempt in worker.attempts(run)] == [
        asked, f"{asked}, but no attempt is left",
    ]  # fmt: skip


@covers("friction 2")
@pytest.mark.parametrize("kind", ["def", "async def"])
def test_an_attempt_is_not_spent_if_the_other_side_asked_to_wait(start_worker, kind, tmp_path):
    module = f"""
        import os, pathlib
        from pgflowd import Flow, RetryAfter
        flow = Flow("flow", max_attempts=1)

        @flow.step
        {kind} work(run, ctx):
            first = ctx.memo("first", lambda: ctx.token)
            with open({str(tmp_path / "calls")!r}, "a") as calls: calls.write("x")
            if len(pathlib.Path({str(tmp_path / "calls")!r}).read_text()) < 3:
                raise RetryAfter(1, "429: slower", spend=False)
            return [ctx.attempt, ctx.token > first]
    """
    if kind == "async def":
        module = module.replace(
            'ctx.memo("first", lambda: ctx.token)', 'await ctx.memo("first", token, ctx)'
        )
        module = module.replace(
            "        @flow.step",
            "        async def token(ctx): return ctx.token\n\n        @flow.step",
        )
    worker = start_worker(module, tasks_per_runner=1 if kind == "def" else 4)

    run = worker.start_run()

    assert worker.output(run) == {"work": [1, True]}
    assert worker.outcomes(run) == ["released", "released", "completed"]
    assert [each[2] for each in worker.attempts(run)[:2]] == ["429: slower"] * 2
    records = worker.records("task.released")
    assert [(each["level"], each["error"]) for each in records] == [("info", "429: slower")] * 2
    assert worker.records("task.failed") == []


@covers("friction 2")
def test_an_attempt_is_spent_after_at_most(start_worker):
    body = "raise RetryAfter(30, 'busy', spend=False, at_most='20s') if run else 0"
    worker = start_worker(one_step(body, 1))

    run = worker.start_run(True)

    assert worker.failed(run, 5)
    assert worker.outcomes(run) == ["failed"]
    [(*_, error)] = worker.attempts(run)
    assert error.startswith(
        "busy; it would end more than 20 s (at_most) after the first such attempt"
    )
    [record] = worker.records("task.failed")
    assert (record["level"], record["verdict"]) == ("warning", "failed")
    assert [each["error"] for each in worker.records("run.failed")]


@covers("row 53", "row 54")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("{'items': [1, {1, 2}]}", "E403 output.items[1] is a set"),
        ("float('nan')", "E403 output is NaN"),
        ("{(1, 2): 3}", "E403 output has the key (1, 2)"),
        ("b'x'", "E403 output is a bytes"),
        ("[object()]", "E403 output[0] is an object"),
        ("-float('inf')", "E403 output is"),
        ("__import__('decimal').Decimal(1)", "E403 output is a"),
        ("__import__('datetime').datetime.now()", "E403 output is a"),
        ("'a\\0b'", "E403 output contains a NUL"),
        ("'\\ud800'", "E403 output contains the lone surrogate"),
        ("[[]] if not [a := [], [a := [a] for _ in range(20000)]] else a", "E403 output is nested"),
        ("'x' * 300_000_000", "E404 output has 286.1 MiB"),
    ],
)
def test_an_output_that_is_not_json_is_reported_with_its_place(start_worker, value, text):
    worker = start_worker(one_step(f"return {value}", timeout=30))

    outcome, message = failure(worker, worker.start_run(), 40)

    assert (outcome, message[: len(text)]) == ("failed", text)


@covers("row 55")
@pytest.mark.parametrize("value", ["None", "[]", "0", "''", "'\\u2028</script>'"])
def test_odd_and_large_outputs_arrive_as_they_are(start_worker, value):
    worker = start_worker(one_step(f"return {value}"))

    run = worker.start_run()

    assert worker.output(run) == {"after": eval(value)}


@covers("row 55")
def test_large_outputs_arrive_as_they_are(start_worker):
    module = """
        import hashlib
        from pgflowd import Flow

        flow = Flow("flow", timeout=20)

        @flow.step
        def work(run):
            return "x\u2028" * (run["bytes"] // 4)

        @flow.step
        def after(work):
            return hashlib.sha256(work.encode()).hexdigest()
    """
    worker = start_worker(module)

    for size in (1_000_000, 15_000_000):
        run = worker.start_run({"bytes": size})
        whole = ("x\u2028" * (size // 4)).encode()
        assert worker.output(run, 20) == {"after": hashlib.sha256(whole).hexdigest()}


@covers("row 48")
@pytest.mark.parametrize(
    "write",
    [
        "b'rubbish! ' * 10",
        "b'\\0\\0\\0\\2\\x40\\0\\0\\0{}'",  # announces a gigabyte
        "b'\\0\\0\\0\\x09\\0\\0\\0\\0not json!'",
        'b\'\\0\\0\\0\\x0f\\0\\0\\0\\0{"say":"dance"}\'',
    ],
)
def test_rubbish_in_the_socket_is_the_end_of_this_runner_only(start_worker, write):
    body = f"""
        import socket
        names = [int(name) for name in sorted(os.listdir("/proc/self/fd"))[:-1] if int(name) > 2]
        number = [n for n in names if "socket" in os.readlink(f"/proc/self/fd/{{n}}")][0]
        if not run: os.write(number, {write})
        time.sleep(600)
    """
    worker = start_worker(one_step(body, timeout=1))

    run, sleeper = worker.start_run(), worker.start_run({"only": "sleep"})
    outcome, message = failure(worker, run)

    assert outcome in ("crashed", "failed", "timed_out")
    assert "E90" in message or "E404" in message
    assert failure(worker, sleeper, 1 + 0.5 + 1)[0] == "timed_out"  # other deadlines hold
    assert not is_gone(worker.zygote)


@covers("row 58")
def test_handlers_may_use_threads_processes_and_loops(start_worker):
    body = """
        import asyncio, multiprocessing, threading
        async def two(): return 2
        found = [asyncio.run(two())]
        thread = threading.Thread(target=found.append, args=(3,)); thread.start(); thread.join()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found += pool.map(abs, [-4, -5])
        found.append(int(subprocess.run(["echo", "6"], capture_output=True).stdout))
        return found
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": [2, 3, 4, 5, 6]}


def test_a_process_that_a_handler_forks_is_terminated_as_any_other(start_worker):
    body = """
        import multiprocessing
        sleeper = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
        sleeper.start(); sleeper.terminate(); sleeper.join()
        return sleeper.exitcode
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": -15}


@covers("row 59")
def test_a_runner_has_four_descriptors_and_one_is_a_socket(start_worker):
    body = """
        found = {}
        for name in os.listdir("/proc/self/fd"):
            try: found[int(name)] = os.readlink(f"/proc/self/fd/{name}").split(":")[0]
            except OSError: pass
        return [found[n] for n in sorted(found)]
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": ["/dev/null", "pipe", "pipe", "socket"]}


@covers("row 59")
def test_what_a_handler_starts_has_not_our_socket(start_worker):
    body = """
        import subprocess
        command = ["ls", "-l", "/proc/self/fd"]
        listed = subprocess.run(command, capture_output=True, text=True, close_fds=False).stdout
        return "socket:" in listed
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": False}


def test_a_forked_copy_of_the_runner_reports_nothing(start_worker):
    body = """
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        return "once"
    """
    worker = start_worker(one_step(body))

    run = worker.start_run()

    assert worker.output(run) == {"after": "once"}
    assert worker.outcomes(run) == ["completed"] * 2


@covers("trap 13")
def test_a_descriptor_that_the_module_opened_stays_what_it_is(start_worker, tmp_path):
    module = """
        import os
        from pgflowd import Flow
        flow = Flow("flow")
        audit = open("AUDIT", "a")

        @flow.step
        def work(run):
            audit.write("a line")
            audit.flush()
            return os.readlink(f"/proc/self/fd/{audit.fileno()}")
    """
    file = tmp_path / "audit"
    worker = start_worker(module.replace("AUDIT", str(file)))

    assert worker.output(worker.start_run()) == {"work": str(file)}
    assert file.read_text() == "a line"


@pytest.mark.parametrize("handler_output", ["capture", "inherit", "discard"])
def test_output_goes_where_the_config_says(start_worker, handler_output):
    worker = start_worker(one_step("print('hello')"), handler_output=handler_output)

    worker.completed(worker.start_run())

    reported = [record["text"] for record in worker.records("task.output")]
    assert reported == (["hello"] if handler_output == "capture" else [])


def test_a_line_without_an_end_is_its_tasks_as_well(start_worker):
    worker = start_worker(one_step("print('first\\nlast', end='')"))

    run = worker.start_run()
    worker.completed(run)

    reported = [(one["text"], one["run"], one["task"]) for one in worker.records("task.output")]
    assert reported == [("first", run, "work#0"), ("last", run, "work#0")]


def test_the_limit_of_an_output_is_the_configs(start_worker):
    worker = start_worker(one_step("return 'x' * 2000"), max_output_bytes=1024)

    outcome, text = failure(worker, worker.start_run())

    assert (outcome, text[:4]) == ("failed", "E404")


def test_the_context_knows_its_attempt(start_worker):
    body = """
        left_s = (ctx.deadline - __import__("datetime").datetime.now(ctx.deadline.tzinfo)).seconds
        if ctx.attempt == 1: raise ValueError
        return [ctx.run_id, ctx.flow_slug, ctx.step_slug, ctx.task_index, ctx.attempt,
                ctx.max_attempts, left_s in (3, 4), ctx.token, ctx.cancelled.is_set(),
                ctx.stopping.is_set()]
    """
    worker = start_worker(one_step(body, attempts=2))

    run = worker.start_run()

    reported = worker.output(run)["after"]
    token = worker.value("select max(token) from pgflowd.attempts where step_slug = 'work'")
    assert reported == [run, "flow", "work", 0, 2, 2, True, token, False, False]


def test_sigterm_sets_cancelled_and_ends_an_async_handler(start_worker, tmp_path):
    module = """
        import asyncio
        from pathlib import Path
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1, timeout=1)

        @flow.step
        async def work(run, ctx):
            try:
                await asyncio.sleep(600)
            finally:
                Path(run["file"]).write_text(str(ctx.cancelled.is_set()))
    """
    worker = start_worker(module, kill_grace_s=5.0)
    file = tmp_path / "cancelled"

    run = worker.start_run({"file": str(file)})

    assert failure(worker, run)[0] == "timed_out"
    assert file.read_text() == "True"


def test_secrets_of_the_daemon_are_not_in_the_environment(start_worker, monkeypatch):
    for name in ("PGPASSWORD", "PGFLOWD__DATABASE__URL", "NOTIFY_SOCKET", "WATCHDOG_USEC"):
        monkeypatch.setenv(name, "canary")
    worker = start_worker(one_step("return [k for k, v in os.environ.items() if v == 'canary']"))

    run = worker.start_run()

    assert worker.output(run) == {"after": []}


def test_threads_of_a_handler_may_use_the_context_at_once(start_worker):
    body = """
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ctx.flow_input) for _ in range(20)]
            looked = [pool.submit(ctx.stopping.is_set) for _ in range(200)]
        return [len({str(each.result()) for each in asked}), any(e.result() for e in looked)]
    """
    worker = start_worker(one_step(body))

    run = worker.start_run({"n": 1})

    assert worker.output(run) == {"after": [1, False]}
