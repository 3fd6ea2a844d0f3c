"""What handlers keep by `ctx.memo` and `ctx.save`, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import signal
import uuid
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.covers import covers
from support.worker import PROFILE_T, failure, in_handler, one_step

from pgflowd.core.messages import Wake
from pgflowd.testing.until import until

# a memo's function writes a line, so it is known how often it was called
NOTES = """
    import asyncio, json, os, signal, threading, time
    from pathlib import Path
    from pgflowd import Flow, RunError

    flow = Flow("flow", max_attempts=20, base_delay=0, timeout=20)

    def note(place, what):
        number = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(number, (json.dumps(what) + "\\n").encode())
        os.close(number)
        return what

    def wait_for(path):
        while not os.path.exists(path):
            time.sleep(0.005)

    {decorator}
    {keyword}def work(run, ctx):
        {body}
"""


def noted(body: str, *, decorator: str = "@flow.step", keyword: str = "") -> str:
    return NOTES.format(body=in_handler(body), decorator=decorator, keyword=keyword)


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def checkpoints(worker: Any, run: str) -> dict[str, Any]:
    query = "select name, data from pgflowd.checkpoints where run_id = %s order by name"
    return {row.name: row.data for row in worker.rows(query, run)}


def test_a_memo_is_computed_once_though_its_runner_is_killed_after_it(start_worker, tmp_path):
    place = tmp_path / "calls"
    worker = start_worker(noted("""
        first = ctx.memo("first", note, run["place"], {"attempt": ctx.attempt})
        if ctx.attempt == 1: os.kill(os.getpid(), signal.SIGKILL)
        second = ctx.memo("second", note, run["place"], 2)
        if ctx.attempt == 2: raise ValueError("no")
        return [first, second, ctx.memo("first", note, run["place"], 9), ctx.attempt]
    """))  # fmt: skip

    run = worker.start_run({"place": str(place)})

    assert worker.output(run) == {"work": [{"attempt": 1}, 2, {"attempt": 1}, 3]}
    assert lines(place) == [{"attempt": 1}, 2]
    assert worker.outcomes(run) == ["crashed", "failed", "completed"]


@covers("G13")
def test_a_memo_is_computed_once_though_its_worker_is_killed_after_it(start_worker, tmp_path):
    place, gate = tmp_path / "calls", tmp_path / "gate"
    module = noted("""
        kept = ctx.memo("one", note, run["place"], ctx.attempt)
        note(run["place"] + ".begun", kept)
        wait_for(run["gate"])
        return kept
    """)
    first = start_worker(module)
    run = first.start_run({"place": str(place), "gate": str(gate)})
    until(lambda: lines(tmp_path / "calls.begun"))

    os.kill(first.pid, signal.SIGKILL)
    until(lambda: not first.processes())
    first.conn.execute("select pgflowd.crashed(%s, 'killed')", (first.worker_id,))
    gate.touch()
    second = start_worker(module)
    second.send(Wake())

    assert second.output(run) == {"work": 1}
    assert lines(place) == [1]


@covers("G13")
def test_what_was_acknowledged_is_loaded_by_the_next_attempt_wherever_the_last_one_died(
    start_worker, tmp_path
):
    """A thread kills the runner a little later each time; the last save may lack its answer."""
    place = tmp_path / "acknowledged"
    worker = start_worker(noted("""
        page, place = ctx.load("page", 0), Path(run["place"])
        known = int(place.read_text()) if place.exists() else 0
        if page not in (known, known + 1): return f"{page} is loaded, {known} was acknowledged"
        def acknowledge(page):
            place.with_suffix(".new").write_text(str(page))
            place.with_suffix(".new").rename(place)
        acknowledge(page)
        if ctx.attempt < 12:
            kill = lambda: (time.sleep(0.002 * ctx.attempt), os.kill(os.getpid(), 9))
            threading.Thread(target=kill).start()
        while page < 60 or ctx.attempt < 12:
            page += 1
            ctx.save("page", page)
            acknowledge(page)
        return "all"
    """))  # fmt: skip

    run = worker.start_run({"place": str(place)})

    assert worker.output(run, 30) == {"work": "all"}
    assert worker.outcomes(run) == ["crashed"] * 11 + ["completed"]
    assert checkpoints(worker, run)["page"] >= 60


def test_values_are_saved_loaded_and_dropped_as_json(start_worker):
    worker = start_worker(
        noted("""
        before = ctx.load("x"), ctx.load("x", 5)
        ctx.save("x", {"é": [1, 2.5, None, "😀"], "big": 10**30})
        ctx.save("y", ("a", "tuple"))
        loaded = [ctx.load("x"), ctx.load("y")]
        loaded[0]["é"] = "changed"
        ctx.drop("y"); ctx.drop("never saved")
        return [before, loaded[1], ctx.load("x"), ctx.load("y", "gone")]
    """)
    )

    run = worker.start_run({})

    value = {"é": [1, 2.5, None, "😀"], "big": 10**30}
    assert worker.output(run) == {"work": [[None, 5], ["a", "tuple"], value, "gone"]}
    assert checkpoints(worker, run) == {"x": value}


@pytest.mark.own_session  # once is enough
def test_more_is_saved_than_fits_into_memory_at_once_and_is_read_one_by_one(start_worker):
    worker = start_worker(
        noted("""
        if ctx.attempt == 1:
            for number in range(20): ctx.save(f"{number:02}", os.urandom(500_000).hex())
            ctx.save("99", "the last")
            raise ValueError("once more")
        return [len(ctx.load(f"{number:02}")) for number in range(20)] + [ctx.load("99")]
    """)
    )

    run = worker.start_run({})

    assert worker.output(run, 20) == {"work": [1_000_000] * 20 + ["the last"]}


@covers("G4", "G13", "E407")
def test_a_task_that_another_worker_has_saves_and_drops_nothing(start_worker, tmp_path):
    long = replace(PROFILE_T.worker, heartbeat_interval_s=60.0)
    settings = replace(PROFILE_T, worker=long, recovery=replace(PROFILE_T.recovery, lease_s=200.0))
    gate = tmp_path / "gate"
    worker = start_worker(noted("""
        if ctx.attempt > 1: return ctx.load("page")
        ctx.save("page", 1)
        note(run["gate"] + ".begun", 1)
        wait_for(run["gate"])
        for change in (lambda: ctx.save("page", 2), lambda: ctx.drop("page")):
            try: change()
            except RunError as error:
                note(run["gate"] + ".told", [type(error).__name__, error.code])
        return "the old one"
    """), settings=settings)  # fmt: skip
    worker.was_frozen = True
    run = worker.start_run({"gate": str(gate)})
    until(lambda: lines(tmp_path / "gate.begun"))

    worker.do("update pgflowd.attempts set lease_until = now() - interval '1 min'")
    until(lambda: worker.value("select pgflowd.recover_stalled('2 s')"), 5)
    other = worker.worker("flow")
    [taken] = until(lambda: worker.claim("flow", other))
    gate.touch()

    until(lambda: len(lines(tmp_path / "gate.told")) == 2)
    assert lines(tmp_path / "gate.told") == [["LeaseLost", "E407"]] * 2
    assert checkpoints(worker, run) == {"page": 1}
    until(lambda: any(r.get("code") == "E407" for r in worker.records("worker.error")))
    assert worker.complete(taken, "the new one") == "completed"


def test_e424_a_value_that_is_too_large_leaves_the_one_before(start_worker):
    worker = start_worker(noted("""
        ctx.save("x", "small")
        codes = []
        for size in run:
            try: ctx.save("x", "x" * size)
            except RunError as error: codes.append([type(error).__name__, error.code])
        return [codes, ctx.load("x")]
    """), max_output_bytes=1_000_000)  # fmt: skip
    worker.do("select pgflowd.set_setting('checkpoint_max', '2000', 'me')")

    run = worker.start_run([3000, 2_000_000, 1990])

    codes = [["TooLarge", "E424"]] * 2
    assert worker.output(run) == {"work": [codes, "x" * 1990]}


def test_a_save_that_meets_a_lock_is_tried_again_until_it_is_free(start_worker, database, tmp_path):
    worker = start_worker(
        noted("""
        wait_for(run["gate"])
        ctx.save("x", 1)
        return "saved"
    """)
    )
    gate = tmp_path / "gate"
    run = worker.start_run({"gate": str(gate)})
    until(lambda: worker.processes("#"))

    with worker.conn.transaction():
        worker.do("select from pgflow.step_tasks where run_id = %s for update", run)
        gate.touch()
        renewed = "select max(last_heartbeat_at) from pgflow.workers"
        with database.connect() as other:
            before = worker.value(renewed, conn=other)
            until(lambda: worker.value(renewed, conn=other) > before, 5)  # no renewal waits for it
        assert checkpoints(worker, run) == {}

    assert worker.output(run) == {"work": "saved"}
    assert checkpoints(worker, run) == {"x": 1}


def test_a_task_that_waits_for_a_lock_to_save_is_ended_at_its_timeout(start_worker, tmp_path):
    module = noted("wait_for(run['gate']); ctx.save('x', 1)")
    worker = start_worker(
        module.replace("max_attempts=20", "max_attempts=1").replace("=20)", "=1)")
    )
    gate = tmp_path / "gate"
    run = worker.start_run({"gate": str(gate)})
    until(lambda: worker.processes("#"))

    with worker.conn.transaction():
        worker.do("select from pgflow.step_tasks where run_id = %s for update", run)
        gate.touch()
        until(lambda: not worker.processes("#"))

    assert worker.failed(run)
    assert worker.outcomes(run) == ["timed_out"]
    assert checkpoints(worker, run) == {}


@pytest.mark.timing
@pytest.mark.own_session
def test_a_hundred_runners_that_save_without_end_delay_no_renewal(start_worker):
    """Measured while nine others used the machine: 0.10 s at most."""
    worker = start_worker(noted("""
        ends = time.monotonic() + run["for_s"]
        while time.monotonic() < ends: ctx.save("x", "x" * 1000)
    """), max_concurrency=100)  # fmt: skip
    for _ in range(100):
        worker.start_run({"for_s": 8})
    until(lambda: len(worker.processes("#")) == 100, 60)

    last = "select extract(epoch from max(last_heartbeat_at))::float8 from pgflow.workers"
    beats = [worker.value(last)]

    def has_another() -> bool:
        beats.append(worker.value(last))
        return len(set(beats)) > 10

    until(has_another, 30)
    gaps = [later - earlier for earlier, later in pairwise(beats)]
    assert max(gaps) < PROFILE_T.worker.heartbeat_interval_s + 0.5


@covers("G2", "G13")
@pytest.mark.parametrize("delay_ms", [0, 2, 6])
def test_rows_of_a_memo_exist_if_and_only_if_it_does(start_worker, tmp_path, delay_ms: int):
    """Runners are killed at any moment around the commit of a memo."""
    worker = start_worker(noted("""
        def pay(number):
            ctx.conn().execute("insert into paid values (%s)", (number,))
            return number
        if ctx.attempt < 10:
            pause_s = run["delay_s"] + ctx.attempt * 0.0007
            kill = lambda: (time.sleep(pause_s), os.kill(os.getpid(), 9))
            ctx.conn()
            threading.Thread(target=kill).start()
        for number in range(100 if ctx.attempt < 10 else 20):
            ctx.memo(f"pay {number}", pay, number)
        return "all"
    """))  # fmt: skip
    worker.do("create table paid (number int)")

    run = worker.start_run({"delay_s": delay_ms / 1000})

    assert worker.output(run, 20) == {"work": "all"}
    memos = sorted(data for name, data in checkpoints(worker, run).items() if "pay" in name)
    assert sorted(worker.column("select number from paid")) == memos
    assert memos[:20] == list(range(20))


def test_what_a_memo_did_on_the_connection_is_undone_with_it(start_worker):
    worker = start_worker(
        noted("""
        conn = ctx.conn()
        def fails(number):
            conn.execute("insert into made values (%s)", (number,))
            raise ValueError(number)
        conn.execute("insert into made values (1)")
        for number in (2, 3):
            try: ctx.memo("x", fails, number)
            except ValueError: pass
        try: ctx.memo("x", lambda: [conn.execute("insert into made values (4)"), "x" * 9999][1])
        except RunError as error: return error.code
    """)
    )
    worker.do("create table made (number int)")
    worker.do("select pgflowd.set_setting('checkpoint_max', '2000', 'me')")

    run = worker.start_run({})

    assert worker.output(run) == {"work": "E424"}
    assert worker.column("select number from made") == [1]
    assert checkpoints(worker, run) == {}


def test_a_memo_does_not_mind_how_the_handler_left_its_session(start_worker):
    worker = start_worker(
        noted("""
        from psycopg.rows import dict_row
        conn = ctx.conn()
        conn.row_factory = dict_row
        conn.execute("set local client_encoding = 'LATIN1'")
        conn.execute(f"set local search_path = nowhere; set local role {run}")
        def write(number):
            conn.execute("insert into public.made values (%s)", (number,))
            return "é😀"
        first = ctx.memo("first", write, 1)
        only_read = ctx.memo("read", lambda: conn.execute("select 1 as n").fetchone()["n"])
        conn.rollback()
        with conn.transaction():
            write(3)
            try: ctx.memo("inside", write, 2)
            except RunError as error: code = error.code
        return [first, only_read, code]
    """)
    )
    role = f"left_{uuid.uuid4().hex}"
    worker.do(f"create role {role}; create table made (number int)")
    worker.do(f"grant {role} to current_user; grant insert on made to {role}")

    run = worker.start_run(role)

    assert worker.output(run) == {"work": ["é😀", 1, "E431"]}
    assert worker.column("select number from made order by number") == [1, 3]
    assert checkpoints(worker, run) == {"first": "é😀", "read": 1}
    worker.do(f"drop owned by {role}; drop role {role}")


def test_async_handlers_await_their_memos_alone_and_in_shared_runners(start_worker, tmp_path):
    place = tmp_path / "calls"
    body = """
        async def fetch(page):
            await asyncio.sleep(0.01)
            return note(run["place"], page)
        pages = [await ctx.memo(f"page {page}", fetch, page) for page in range(3)]
        plain = ctx.memo("plain", len, "four")
        if ctx.attempt == 1: raise ValueError("once more")
        return [pages, plain]
    """
    for shared in (1, 20):
        worker = start_worker(noted(body, keyword="async "), tasks_per_runner=shared)
        runs = [worker.start_run({"place": f"{place}{shared}"}) for _ in range(5)]
        for run in runs:
            assert worker.output(run) == {"work": [[0, 1, 2], 4]}
        assert sorted(lines(tmp_path / f"calls{shared}")) == sorted([0, 1, 2] * 5)
        assert worker.drain() == 0


def test_threads_of_a_handler_save_too_and_a_forked_process_cannot(start_worker):
    worker = start_worker(
        noted("""
        def save(number): ctx.save(f"x {number}", ctx.memo(f"y {number}", lambda: number))
        threads = [threading.Thread(target=save, args=(number,)) for number in range(8)]
        for each in threads: each.start()
        for each in threads: each.join()
        reading, writing = os.pipe()
        if not (child := os.fork()):
            try: ctx.save("z", 1)
            except RunError as error: os.write(writing, error.code.encode())
            os._exit(0)
        os.waitpid(child, 0)
        return [os.read(reading, 99).decode(), sum(ctx.load(f"x {n}") for n in range(8))]
    """)
    )

    run = worker.start_run({})

    assert worker.output(run) == {"work": ["E402", 28]}
    assert len(checkpoints(worker, run)) == 16


@covers("E425")
def test_e425_older_code_leaves_what_newer_code_has_saved(start_worker):
    body = """
        if ctx.load("x"): return [ctx.load("x"), VERSION]
        ctx.save("x", "by the newer")
        raise ValueError("once more")
    """
    older, newer = (
        noted(body.replace("VERSION", str(version)), decorator=f"@flow.step(version={version})")
        for version in (1, 2)
    )
    newer = newer.replace("base_delay=0", "base_delay=1")
    first = start_worker(newer)
    run = first.start_run({})
    until(lambda: first.outcomes(run) == ["failed"])
    assert first.quick_stop() == 0

    second = start_worker(older)
    until(lambda: second.send(Wake()) or second.outcomes(run) == ["failed", "suspended"], 10)

    wait = second.row("""
        select kind, name, checkpoint, why, attempts_count,
               extract(epoch from due_at - since) between 25 and 31 as is_soon
          from pgflowd.waits join pgflow.step_tasks using (run_id, step_slug, task_index)
    """)
    assert (wait.kind, wait.name, wait.checkpoint, wait.attempts_count) == ("sleep", None, None, 1)
    assert wait.is_soon and wait.why.startswith("E425 ")
    [record] = until(lambda: second.records("task.suspended"))
    assert record["level"] == "info" and "E425" in record["error"]


WRONG = {
    'ctx.save("", 1)': "E429",
    'ctx.save("sleep 1", 1)': "E429",
    'ctx.save("x" * 201, 1)': "E429",
    'ctx.drop("a" + chr(0))': "E429",
    'ctx.save("x", {1, 2})': "E403",
    'ctx.memo("x", lambda: float("nan"))': "E403",
    "ctx.sleep('300000d')": "E430",
    "ctx.sleep(-1)": "E430",
    "ctx.sleep(float('inf'))": "E430",
    "ctx.sleep('10')": "E430",
    "ctx.sleep()": "E430",
    "ctx.wait_signal('')": "E429",
    "ctx.wait_signal('a', timeout='-1s')": "E430",
}


@covers("E429")
def test_a_wrong_call_fails_the_task_and_changes_nothing(start_worker):
    worker = start_worker(one_step("eval(run)"))

    for call, code in WRONG.items():
        run = worker.start_run(call)
        outcome, text = failure(worker, run)
        assert (outcome, text[:4]) == ("failed", code), call
        assert checkpoints(worker, run) == {}
    assert worker.value("select count(*) from pgflowd.waits") == 0


GARBAGE = [
    {"say": "ask", "what": "save", "token": "TOKEN", "name": "sleep 1"},
    {"say": "ask", "what": "save", "token": "TOKEN", "name": ["x"], "version": 1},
    {"say": "ask", "what": "save", "token": "TOKEN", "name": "x", "version": -1},
    {"say": "ask", "what": "saved", "token": []},
    {"say": "ask", "what": {}, "token": "TOKEN"},
    {"say": "ask", "what": "drop"},
    {"say": "done", "token": [], "outcome": "completed"},
    {"say": "done", "token": "TOKEN", "outcome": "suspended"},
    {"say": "done", "token": "TOKEN", "outcome": "suspended", "wait": {"kind": "sleep"}},
    {"say": "done", "token": "TOKEN", "outcome": "suspended",
     "wait": {"kind": "signal", "name": "x", "checkpoint": "x" * 300}},
]  # fmt: skip


@pytest.mark.parametrize("shared", [1, 4])
def test_e903_forged_questions_and_suspensions_end_their_runner_only(start_worker, shared: int):
    worker = start_worker(
        one_step("""
            import asyncio, json, struct
            head = json.dumps(run).replace('"TOKEN"', str(ctx.token)).encode()
            for name in os.listdir("/proc/self/fd"):
                try:
                    if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                        os.write(int(name), struct.pack("!II", len(head), 1) + head + b"1")
                except OSError: pass
            await asyncio.sleep(3)
        """, timeout=10).replace("def work", "async def work"),
        tasks_per_runner=shared,
    )  # fmt: skip

    for head in GARBAGE:
        run = worker.start_run(head)
        outcome, text = failure(worker, run)
        assert (outcome, text[:4]) == ("crashed", "E903"), head
        assert checkpoints(worker, run) == {}
    assert not worker.child.has_ended()


def test_what_is_no_json_is_refused_by_the_database_and_the_task_goes_on(start_worker):
    worker = start_worker(
        noted("""
        try: ctx._ask("save", b"{", name="x", version=1)
        except RunError as error: return [error.code, ctx.load("x", "nothing")]
    """)
    )

    run = worker.start_run({})

    assert worker.output(run) == {"work": ["E409", "nothing"]}
