"""
Workloads: W1 to W7, and how ours grows.

    W1   single tasks, queued beforehand            W5   starts by one client, no worker
    W2   chains of three, queued beforehand         W6   an idle worker
    W3   a map and its join, on an idle worker      W7   the first tasks of a long queue
    W4   from a commit to the handler's first line, on an idle worker

    2,000 async   tasks that wait for a second, 2,000 of them at once

What is queued beforehand is longer by a tenth: the clock starts when so many handlers have run,
so nobody's start-up is measured, and stops when the database has written down the last one. A
workload returns figures by name; CPU is in milliseconds per task, of the worker with all its
processes and of PostgreSQL.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from measure import pss_mb
from stage import Bench, Cost, Stage
from systems.system import AT_ONCE, WAITING

Figures = dict[str, float]


@dataclass(frozen=True)
class Scale:
    """How much of everything, and how often."""

    rounds: int = 5  # at most, while there is time, but two
    limit_s: float = 680.0
    tasks: int = 5_000
    chains: int = 1_000
    elements: int = 1_000
    latencies: int = 34  # per round
    starts: int = 1_000
    idle_s: float = 30.0
    idle_flows: int = 16  # 0: only one, as for everybody
    settle_s: float = 12.0  # PostgreSQL's statistics are up to ten seconds late
    queue: int = 100_000
    growth_tasks: int = 24_000
    runners: tuple[int, ...] = (1, 2, 4, 10, 32, 64)
    maps: tuple[int, ...] = (1_000, 10_000, 100_000)
    waiting: int = 12_000


QUICK = Scale(
    rounds=1,
    limit_s=110.0,
    tasks=1_000,
    chains=200,
    latencies=12,
    starts=300,
    idle_s=4.0,
    idle_flows=0,
    settle_s=3.0,
    queue=10_000,
    growth_tasks=2_000,
    runners=(1, 10, 64),
    maps=(1_000, 10_000),
    waiting=6_000,
)
INTERVAL_S = 0.2
WARM = 100  # tasks for each flow before its runners are looked at


def drained(stage: Stage, slots: range, warm: int, name: str) -> Figures:
    """Serve what is queued, to the end; measure from the moment when `warm` handlers have run."""
    stage.serve()
    stage.wait_until_marked(slots, warm)
    before, done, began = stage.cost(), stage.marked(slots), time.monotonic()
    stage.wait_until_marked(slots)
    stage.wait_until_written()
    took, cost = time.monotonic() - began, stage.cost().since(before)
    return rates(name, len(slots) - done, took, cost)


def rates(name: str, tasks: int, took: float, cost: Cost) -> Figures:
    return {
        f"{name} per s": tasks / took,
        f"{name} worker ms": cost.worker_s / tasks * 1e3,
        f"{name} server ms": cost.server_s / tasks * 1e3,
        f"{name} CPU ms": (cost.worker_s + cost.server_s) / tasks * 1e3,
        f"{name} WAL kB": cost.wal_kb / tasks,
    }


def starts_and_tasks(bench: Bench, system: str, scale: Scale) -> Figures:
    """W5, then W1 with what was started, then W4 on the worker that is idle now."""
    with bench.stage(system, ["single"]) as stage:
        warm = max(scale.tasks // 10, scale.starts)
        slots = stage.slots(warm + scale.tasks)
        alone = slots[: scale.starts]
        others = slots[scale.starts :]
        stage.call("start_each", "single", list(alone[:50]))
        _, began, ended = stage.timed("start_each", "single", list(alone[50:]))
        figures = {"W5 each per s": (len(alone) - 50) / (ended - began) * 1e9}
        _, began, ended = stage.timed("start_many", "single", list(others))
        figures["W5 many per s"] = len(others) / (ended - began) * 1e9
        assert stage.rows("unfinished") == len(slots), "starts are missing"
        figures |= drained(stage, slots, warm, "W1")
        stage.check(slots, len(slots) * stage.told["rows"]["single"])
        if "chain" in stage.told["kinds"]:  # else it is no engine, and may poll
            figures |= latencies(stage, scale.latencies, len(slots))
        return figures


def latencies(stage: Stage, count: int, before: int) -> Figures:
    """W4: the median and all but the slowest hundredth are taken over all rounds."""
    slots = stage.slots(count + 3)
    found: Figures = {}
    for number, slot in enumerate(slots):
        time.sleep(INTERVAL_S)
        _, _, committed = stage.timed("start_each", "single", [slot])
        stage.wait_until_marked(range(slot, slot + 1))
        found[f"W4 ms #{number - 3}"] = (stage.bench.starts[slot] - committed) / 1e6
    stage.wait_until_written()
    stage.check(slots, (before + len(slots)) * stage.told["rows"]["single"])
    return {name: ms for name, ms in found.items() if "-" not in name}  # the first three: warm


def chains_and_map(bench: Bench, system: str, scale: Scale) -> Figures:
    """W2, then W3 on the worker that is idle now."""
    with bench.stage(system, ["chain", "map"]) as stage:
        told = stage.told
        runs = scale.chains + scale.chains // 10
        figures = chains(stage, "chain", scale, "W2")
        completed = runs * told["rows"]["chain"]
        for elements in (20, 20, scale.elements):  # two to warm up
            figures |= one_map(stage, elements, "W3")
            completed += told["map_rows"][0] + told["map_rows"][1] * elements
            assert stage.rows("completed") == completed, "a map is not complete"
        return figures


def chains_with_run(bench: Bench, system: str, scale: Scale) -> Figures:
    """W2 again, by steps that also take the run's input."""
    with bench.stage(system, ["chain_with_run"]) as stage:
        return chains(stage, "chain_with_run", scale, "W2 with run")


def chains(stage: Stage, kind: str, scale: Scale, name: str) -> Figures:
    runs = scale.chains + scale.chains // 10
    slots = stage.slots(3 * runs)
    stage.call("start_many", kind, list(slots[::3]))
    figures = drained(stage, slots, 3 * (runs - scale.chains), name)
    stage.check(slots, runs * stage.told["rows"][kind])
    return figures


def one_map(stage: Stage, elements: int, name: str) -> Figures:
    """A map and its join, from the start's commit until all is written."""
    slots = stage.slots(elements + 1)
    before = stage.cost()
    _, _, committed = stage.timed("start_map", slots.start, elements)
    stage.wait_until_marked(slots)
    stage.wait_until_written()
    took = (time.monotonic_ns() - committed) / 1e9
    cost = stage.cost().since(before)
    assert stage.bench.starts[slots.stop - 1] >= max(stage.bench.starts[slots.start : slots.stop])
    assert set(stage.bench.counts[slots.start : slots.stop]) == {1}, "not exactly once"
    figures = rates(name, elements, took, cost)
    return {f"{name} s": took, **figures}


def idle(bench: Bench, system: str, scale: Scale, flows: int = 1) -> Figures:
    """W6: CPU, transactions and memory of a worker that has nothing to do."""
    name = "W6" if flows == 1 else f"idle {flows}"
    kinds = ["single"] if flows == 1 else [f"single_{number}" for number in range(flows)]
    with bench.stage(system, kinds) as stage:
        slots = stage.slots(1)
        stage.serve()
        time.sleep(scale.settle_s)
        before, at = stage.cost(), transactions(stage)
        time.sleep(scale.idle_s)
        cost, then = stage.cost().since(before), transactions(stage)
        size, processes = pss_mb(stage.pid)
        stage.call("start_each", kinds[-1], list(slots))  # it was really there
        stage.wait_until_marked(slots)
        return {
            f"{name} worker ms per s": cost.worker_s / scale.idle_s * 1e3,
            f"{name} server ms per s": cost.server_s / scale.idle_s * 1e3,
            f"{name} transactions per s": (then - at) / scale.idle_s,
            f"{name} PSS MB": size,
            f"{name} processes": processes,
        }


def transactions(stage: Stage) -> int:
    """Transactions of the database so far; those of this question are not among them."""
    row = stage.bench.conn.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = %s",
        (stage.conn.info.dbname,),
    ).fetchone()
    assert row
    return int(row[0])


def server_alone(bench: Bench, scale: Scale) -> Figures:
    """What PostgreSQL costs with nobody there: part of everybody's W6."""
    with bench.stage("raw_pgmq", []) as stage:
        stage.conn.execute("checkpoint")
        time.sleep(scale.settle_s)
        before = stage.server_s()
        time.sleep(scale.idle_s / 3)
        return {"W6 server ms per s": (stage.server_s() - before) / scale.idle_s * 3e3}


def long_queue(bench: Bench, system: str, scale: Scale, to_the_end: bool = False) -> Figures:
    """W7; `to_the_end` goes on, and measures W1 where all these runs are history."""
    with bench.stage(system, ["single"]) as stage:
        warm = scale.tasks // 10
        slots = stage.slots(warm + min(scale.queue, stage.told["longest_queue"]))
        stage.call("start_many", "single", list(slots))
        assert stage.rows("unfinished") == len(slots), "starts are missing"
        stage.serve()
        stage.wait_until_marked(slots, warm)
        before, done, began = stage.cost(), stage.marked(slots), time.monotonic()
        stage.wait_until_marked(slots, done + scale.tasks)
        cost, then, took = stage.cost().since(before), stage.marked(slots), time.monotonic() - began
        figures = rates("W7", then - done, took, cost)
        if to_the_end:
            stage.wait_until_marked(slots)
            stage.wait_until_written()
            figures["W7 all per s"] = (len(slots) - done) / (time.monotonic() - began)
            stage.stop()
            stage.check(slots, len(slots))
            more = stage.slots(warm + scale.tasks)
            stage.call("start_many", "single", list(more))
            figures |= drained(stage, more, warm, "history")
            stage.check(more, len(slots) + len(more))
            return figures
        stage.stop()
        counts = set(bench.counts[slots.start : slots.stop])
        assert stage.rows("completed") >= scale.tasks and counts <= {0, 1}, "not exactly once"
        return figures


def waiting(bench: Bench, system: str, scale: Scale) -> Figures:
    """2,000 async: tasks that wait for a second, 2,000 of them at once, and what that takes."""
    name = f"{WAITING:,} async"
    with bench.stage(system, ["waits"], **{AT_ONCE: str(WAITING)}) as stage:
        slots = stage.slots(scale.waiting)
        stage.call("start_many", "waits", list(slots))
        stage.serve()
        stage.wait_until_marked(slots, WAITING)
        before, done, began = stage.cost(), stage.marked(slots), time.monotonic()
        stage.wait_until_marked(slots, len(slots) // 2)
        size, processes = pss_mb(stage.pid)
        stage.wait_until_marked(slots)
        stage.wait_until_written()
        took, cost = time.monotonic() - began, stage.cost().since(before)
        stage.check(slots, len(slots) * stage.told["rows"]["waits"])
        figures = rates(name, len(slots) - done, took, cost)
        return {**figures, f"{name} PSS MB": size, f"{name} processes": processes}


# how ours grows


def quick_async(bench: Bench, scale: Scale) -> Figures:
    """W1 with async handlers that share two runners."""
    with bench.stage("ours", ["quick"]) as stage:
        warm = scale.tasks // 10
        slots = stage.slots(warm + scale.tasks)
        stage.call("start_many", "quick", list(slots))
        figures = drained(stage, slots, warm, "async no-op")
        stage.check(slots, len(slots))
        return figures


def flows(bench: Bench, count: int, scale: Scale) -> Figures:
    """The same number of tasks, in so many flows; and how evenly they come on."""
    kinds = [f"single_{number}" for number in range(count)]
    with bench.stage("ours", kinds) as stage:
        slots = stage.slots(scale.growth_tasks // count * count)
        figures = all_at_once(stage, slots, f"flows {count}")
        each = len(slots) // count
        begun = [sorted(bench.starts[at : at + each]) for at in slots[::each]]
        first_end = min(starts[-1] for starts in begun)
        least = min(sum(1 for start in starts if start <= first_end) for starts in begun)
        return {**figures, f"flows {count} least": least / each}


def runners(bench: Bench, count: int, scale: Scale) -> Figures:
    """Single tasks with so many runners."""
    with bench.stage("ours", ["single"], BENCH_RUNNERS=str(count)) as stage:
        return all_at_once(stage, stage.slots(scale.growth_tasks), f"runners {count}")


def all_at_once(stage: Stage, slots: range, name: str) -> Figures:
    """Warm workers get all of it with one commit, an equal part for each flow."""
    stage.serve()
    warm = stage.slots(WARM * len(stage.kinds))
    for part, kind in zip(_parts(warm, len(stage.kinds)), stage.kinds, strict=True):
        stage.call("start_many", kind, list(part))
    stage.wait_until_marked(warm)
    stage.wait_until_written()
    parts = _parts(slots, len(stage.kinds))
    queued = {kind: list(part) for kind, part in zip(stage.kinds, parts, strict=True)}
    stage.call("start_later", queued)
    before = stage.cost()
    _, _, began = stage.timed("now")
    stage.wait_until_marked(slots)
    stage.wait_until_written()
    took, cost = (time.monotonic_ns() - began) / 1e9, stage.cost().since(before)
    stage.check(slots, len(warm) + len(slots))
    return rates(name, len(slots), took, cost)


def _parts(slots: range, count: int) -> list[range]:
    each = len(slots) // count
    return [slots[at : at + each] for at in range(0, len(slots), each)]


def maps(bench: Bench, scale: Scale) -> Figures:
    """Maps of growing sizes, one after the other on an idle worker."""
    figures: Figures = {}
    with bench.stage("ours", ["map"]) as stage:
        stage.serve()
        for elements in (20, 20, *scale.maps):
            figures |= one_map(stage, elements, f"map {elements}")
        assert stage.rows("completed") == 2 + len(scale.maps), "a map is not complete"
    return figures


def neighbours(bench: Bench, scale: Scale) -> Figures:
    """W4 in a flow whose neighbour has a long queue."""
    with bench.stage("ours", ["single_0", "single_1"]) as stage:
        stage.serve()
        warm, busy = stage.slots(5), stage.slots(4 * scale.tasks)
        for slot in warm:
            stage.call("start_each", "single_0", [slot])
            stage.wait_until_marked(range(slot, slot + 1))
        stage.call("start_later", {"single_1": list(busy)})
        stage.call("now")
        found: list[float] = []
        while stage.marked(busy) < len(busy) * 0.9:
            (slot,) = stage.slots(1)
            _, _, committed = stage.timed("start_each", "single_0", [slot])
            stage.wait_until_marked(range(slot, slot + 1))
            found.append((bench.starts[slot] - committed) / 1e6)
            time.sleep(0.01)
        stage.wait_until_marked(busy)
        stage.wait_until_written()
        assert stage.rows("completed") == len(warm) + len(busy) + len(found), "runs are missing"
        return {f"beside a busy flow ms #{number}": ms for number, ms in enumerate(found)}
