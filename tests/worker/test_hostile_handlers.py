"""Texts of handlers and inputs are data: never code, never SQL, never another record."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from support.covers import covers
from support.hostile import ATTACKS, Unharmed, values

from pgflowd.testing.until import until

ECHO = """
    import hashlib, json
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=20)

    @flow.step
    def same(run): return run

    @flow.step
    def again(same, ctx): return {"it": same, "asked": ctx.step_output("same")}
"""
SAYS = """
    import sys
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=20)

    @flow.step
    def says(run, ctx):
        print(run["text"])
        sys.stderr.write(run["text"] + chr(10))
        ctx.log.info("%s", run["text"])
        ctx.log.warning(run["text"])
        raise type("Odd\\nname\\x1b[2J", (Exception,), {})(run["text"])
"""
PICKLES = """
    import os, pickle, struct
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=5)

    class Malicious:
        def __reduce__(self): return (os.mkdir, ("PLACE",))

    @flow.step
    def sends(run):
        bad = pickle.dumps(Malicious())
        for name in os.listdir("/proc/self/fd"):
            try:
                if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                    frame = bad if run["raw"] else struct.pack("!II", len(bad), 0) + bad
                    os.write(int(name), frame)
            except OSError:
                pass
        return "sent"
"""
FORGED = '{"time":"2026-01-01T00:00:00Z","level":"error","event":"forged"}'


@covers("row 96", "row 107")
def test_hostile_values_come_through_a_worker_unchanged(start_worker):
    worker = start_worker(ECHO)
    unharmed = Unharmed(worker.conn)

    @settings(
        max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(value=values())
    def attack(value: Any) -> None:
        assert worker.output(worker.start_run(value)) == {"again": {"it": value, "asked": value}}

    attack()
    assert unharmed.is_it()


@covers("row 105")
def test_output_of_a_handler_is_one_record_per_line(start_worker, tmp_path):
    worker = start_worker(SAYS)
    texts = [*ATTACKS, f"x\n{FORGED}\n", f"x\r{FORGED}", f"x\x85{FORGED}", f"x\u2028{FORGED}"]

    for text in texts:
        run = worker.start_run({"text": text})
        assert worker.failed(run)

    (written,) = tmp_path.glob("*.log")
    log = written.read_bytes().decode()
    assert worker.records("task.failed")
    assert worker.records("forged") == []
    for line in log.removesuffix("\n").split("\n"):
        record = json.loads(line)
        assert record["event"].startswith(("run.", "step.", "task.", "worker.", "log.")), line
        assert not {char for char in line if ord(char) < 32 or char in "\x7f\x85\u2028\u202e"}


@covers("row 108")
def test_a_pickle_that_a_handler_sends_is_never_unpickled(start_worker, tmp_path):
    place = tmp_path / "made-by-a-pickle"
    worker = start_worker(PICKLES.replace("PLACE", str(place)))

    runs = [worker.start_run({"raw": raw}) for raw in (True, False)]

    assert all(worker.failed(run) for run in runs)
    assert all(set(worker.outcomes(run)) <= {"crashed", "failed", "timed_out"} for run in runs)
    assert not place.exists()
    assert not worker.child.has_ended()


@covers("row 49")
def test_a_flood_of_empty_lines_is_no_flood_of_records(start_worker):
    flood = """
        import os, time
        from pgflowd import Flow
        flow = Flow("flow", max_attempts=1, timeout=20)

        @flow.map
        def floods(item):
            if item: return time.sleep(0.5)
            for _ in range(1000): os.write(1, b"\\n" * 60_000)
            return "done"
    """
    worker = start_worker(flood, max_concurrency=2)

    run = worker.start_run([0, 1])

    assert worker.output(run, 20) == {"floods": ["done", None]}
    more = "bytes of output more"
    until(lambda: more in worker.records("task.output")[-1]["text"], within_s=20)
    assert 5_000 < len(worker.records("task.output")) <= 10_001
