"""The status of the daemon and its metrics, made from supervision trees."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from support.covers import covers
from support.trees import (
    CANNOT,
    CRASH,
    before,
    ended,
    on_discovered,
    on_exit,
    on_stop,
    on_waiting,
    ready,
    running,
    sleeping,
    starting,
)

from pgflowd.core.documents import versioned
from pgflowd.core.documents.daemon_status import (
    ChildFacts,
    DaemonFacts,
    is_ready,
    state_of,
    status_of,
)
from pgflowd.core.messages import MAX_MESSAGE_BYTES, Heartbeat, encode
from pgflowd.core.metrics.definitions import BOUNDS_S, added, counters_of, merged, observe, portions
from pgflowd.core.metrics.exposition import MAX_STEPS, TextFormat, exposition
from pgflowd.core.supervision.reload import BrokenEntry
from pgflowd.core.supervision.tree import Tree
from pgflowd.core.sweeper import SweeperPart

ID = UUID(int=1)
DONE = {part.value: {"at": 59.0} for part in SweeperPart}  # all of a sweeper's work


def facts(**children: ChildFacts) -> DaemonFacts:
    by_id = {name.replace("__", " "): fact for name, fact in children.items()}
    if "sweeper" in by_id and "parts" not in by_id["sweeper"].numbers:
        numbers = {**by_id["sweeper"].numbers, "parts": DONE}
        by_id["sweeper"] = replace(by_id["sweeper"], numbers=numbers)
    return DaemonFacts(ID, "shop", "app1", "0.1.0", 812, 1000.0, 0.0, 1060.0, 60.0, by_id)


def document(tree: Tree, known: DaemonFacts) -> dict[str, Any]:
    return versioned(status_of(tree, known))


def broken_beside(tree: Tree) -> Tree:
    return on_discovered(tree, [], [BrokenEntry("shop.report", "E210", "no pandas")], 0)[0]


@pytest.mark.parametrize(
    ("tree", "state"),
    [
        (before(), "starting"),
        (starting("a"), "starting"),
        (running("a"), "healthy"),
        (on_exit(running("a", "b"), "worker a", CANNOT, 1.0)[0], "degraded"),
        (on_exit(running("a"), "listener", CRASH, 1.0)[0], "degraded"),
        (on_exit(running("a"), "worker a", CANNOT, 1.0)[0], "failed"),
        (on_stop(running("a"), 1.0, drain=True, within_s=60)[0], "draining"),
        (on_stop(running("a"), 1.0, drain=False)[0], "stopping"),
    ],
)
def test_the_state_of_the_daemon_in_one_word(tree, state):
    assert state_of(tree) == state


def test_a_daemon_that_has_lost_the_database_is_degraded():
    down = ChildFacts(1, 1.0, numbers={"database": {"state": "down", "at": 5}})
    up = ChildFacts(1, 1.0, numbers={"database": {"state": "up", "at": 6}})

    assert document(running("a"), facts(listener=down, sweeper=up))["state"] == "degraded"
    assert document(running("a"), facts(listener=up, sweeper=up))["state"] == "healthy"


@pytest.mark.parametrize(("code", "state"), [("E319", "degraded"), ("W312", "healthy")])
def test_an_error_of_any_child_makes_the_daemon_degraded_and_a_warning_does_not(code, state):
    told = {"code": code, "text": "x", "next": "y"}

    shown = document(running("a"), facts(sweeper=ChildFacts(1, 1.0, numbers={"problems": [told]})))

    assert shown["state"] == state
    assert shown["problems"] == [{"code": code, "flow": None, "text": "x", "next": "y"}]


def test_a_reload_that_was_refused_leaves_a_daemon_healthy():
    refused = {"code": "E102", "flow": None, "text": "x", "next": "y"}

    shown = document(running("a"), replace(facts(), warnings=[refused]))

    assert (shown["state"], shown["problems"]) == ("healthy", [refused])


def test_a_worker_that_stands_still_makes_the_daemon_degraded():
    numbers = {"line_failures": 3, "line_failing_s": 20.0, "line_error": {"text": "no room"}}
    worker = ChildFacts(1, 1.0, "7f3a", 10, numbers, heard_at=58.0, late_s=30.0)

    shown = document(running("a"), facts(worker__a=worker))

    assert shown["state"] == "degraded"
    [problem] = shown["problems"]
    assert (problem["code"], problem["flow"]) == ("E322", "a")
    assert "22s" in problem["text"]


@covers("newcomer 19")
def test_the_age_of_numbers_is_told_the_queue_included():
    worker = ChildFacts(1, 1.0, "7f3a", 10, {"queue_age_s": 11.0}, heard_at=56.5)

    shown = document(running("a", "b"), facts(worker__a=worker))["flows"]

    assert [flow["age_s"] for flow in shown] == [14.5, None]


def test_a_worker_that_has_ended_in_a_drain_is_shown_as_stopping():
    tree, _ = on_stop(running("a", "b"), 1.0, drain=True, within_s=60)
    tree, _ = ended(tree, "sweeper", "worker a", now=2.0)

    states = [flow["state"] for flow in document(tree, facts())["flows"]]

    assert states == ["stopping", "draining"]


def test_the_document_is_as_it_was():
    tree, _ = on_exit(running("a", "b"), "worker a", CANNOT, 1.0)
    tree, _ = on_exit(tree, "listener", CRASH, 2.0)
    database = {"state": "up", "server": "18.4", "place": "db1:5432/shop", "pgmq": "1.13.0",
                "schema": 2, "rtt_s": 0.001, "clock_skew_s": 0.0, "at": 5}  # fmt: skip
    numbers = {
        "running": 7, "queued": 42, "oldest_queued_s": 1.5, "completed_1m": 3, "failed_1m": 0,
        "p50_s": 0.1, "p95_s": 0.41, "zygote": 822, "runners": 8, "stuck": 1, "database": database,
        "wakes_1m": {"notification": 3, "due": 1},
    }  # fmt: skip
    sweeps = {"interval_s": 15.0, "last_sweep_at": 1050.0, "recovered_24h": 1, "given_up_24h": 0}
    worker, sweeper = ChildFacts(821, 31.0, "7f3a", 10, numbers), ChildFacts(5, 1.0, numbers=sweeps)

    shown = document(tree, facts(worker__b=worker, sweeper=sweeper))

    kept = Path(__file__).with_name("status_document.json")
    assert f"{json.dumps(shown, indent=1)}\n" == kept.read_text("utf-8")


def test_a_flow_that_is_up():
    worker = ChildFacts(820, 30.0, "7f3a", 10, {"running": 7, "queued": 42, "p95_s": 0.41})

    flow = document(running("order"), facts(worker__order=worker))["flows"][0]

    assert flow["slug"] == "order"
    assert (flow["state"], flow["pid"], flow["up_s"]) == ("up", 820, 30.0)
    assert (flow["running"], flow["max_concurrency"], flow["queued"]) == (7, 10, 42)
    assert (flow["worker_id"], flow["restarts"], flow["error"]) == ("7f3a", 0, None)
    assert flow["p50_s"] is None


def test_a_flow_that_sleeps_is_well():
    tree = sleeping("order", due_at=100.0)
    known = facts(worker__order=ChildFacts(max_concurrency=10, numbers={"import_s": 0.3}))

    status = document(tree, known)
    [flow] = status["flows"]

    assert (status["state"], status["problems"]) == ("healthy", [])
    assert (flow["state"], flow["pid"], flow["up_s"]) == ("asleep", None, None)
    assert (flow["running"], flow["max_concurrency"], flow["queued"]) == (0, 10, 0)
    assert (flow["asleep_s"], flow["next_due_in_s"], flow["import_s"]) == (60.0, 40.0, 0.3)


def test_a_clock_that_is_set_changes_no_duration():
    known = facts(worker__a=ChildFacts(820, 30.0))

    status = document(running("a"), replace(known, now=known.now + 1e9))

    assert (status["up_s"], status["flows"][0]["up_s"]) == (60.0, 30.0)


@covers("newcomer 21")
@pytest.mark.parametrize("reason", [CANNOT.reason, f"E306 {CANNOT.reason}"])
def test_a_parked_flow_is_a_problem_with_its_code_once_and_the_next_step(reason):
    tree, _ = on_exit(running("a", "b"), "worker a", replace(CANNOT, reason=reason), 1.0)

    status = document(tree, facts())

    assert status["flows"][0]["state"] == "failed"
    assert status["flows"][0]["error"] == {"code": "E306", "text": "no step 'refund'"}
    assert status["flows"][0]["parked_s"] == 59.0
    assert status["problems"] == [
        {"code": "E306", "flow": "a", "text": "no step 'refund'", "next": "pgflowd reload"}
    ]


def test_a_worker_that_restarted_is_a_problem():
    tree, _ = on_exit(running("a"), "worker a", CRASH, 1.0)

    problem = document(tree, facts())["problems"][0]

    assert problem["text"] == "restarted once: killed by SIGKILL"


@covers("row 17")
@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "a runner cannot be killed: its place is lost until it ends"),
        (2, "2 runners cannot be killed: their places are lost until they end"),
    ],
)
def test_runners_that_cannot_be_killed_are_a_problem(count, text):
    worker = ChildFacts(820, 30.0, numbers={"stuck": count})

    problem = document(running("a"), facts(worker__a=worker))["problems"][0]

    assert (problem["flow"], problem["text"]) == ("a", text)


def test_waiting_for_the_database_is_shown():
    tree, _ = on_waiting(starting("a"), "listener", "database", 1.0)

    status = document(tree, facts())

    assert status["database"]["state"] == "down"
    assert status["problems"][0]["code"] == "E301"


@covers("newcomer 7")
def test_the_reason_for_waiting_for_the_database_is_shown():
    tree, _ = on_waiting(starting("a"), "listener", "database", 1.0)
    error = "too many clients"
    database = {"state": "down", "at": 5, "code": "E310", "error": error, "next": "mend it"}

    status = document(tree, facts(listener=ChildFacts(1, 1.0, numbers={"database": database})))

    text = "listener waits for the database: too many clients"
    assert status["problems"][0] == {"code": "E310", "flow": None, "text": text, "next": "mend it"}
    assert not {"code", "error", "next"} & status["database"].keys()


def test_the_newest_report_about_the_database_counts():
    listener = ChildFacts(1, 1.0, numbers={"database": {"state": "up", "server": "18.4", "at": 5}})
    sweeper = ChildFacts(2, 1.0, numbers={"database": {"state": "down", "at": 9}})

    status = document(running("a"), facts(listener=listener, sweeper=sweeper))["database"]

    assert (status["state"], status["server"]) == ("down", "18.4")


def test_rubbish_among_the_numbers_does_no_harm():
    rubbish = {"database": 3, "wakes_1m": [1], "problems": "x", "last_sweep_at": "soon"}
    children = dict.fromkeys(
        ("listener", "sweeper", "worker__a"), ChildFacts(1, 1.0, numbers=rubbish)
    )

    json.dumps(document(running("a"), facts(**children)))


def test_a_child_without_a_process_has_no_pid():
    tree, _ = on_exit(running("a"), "listener", CRASH, 1.0)
    tree, _ = ended(tree, "sweeper")

    status = document(tree, facts(sweeper=ChildFacts(5, 1.0)))

    assert status["listener"]["state"] == "restarting"
    assert status["sweeper"]["pid"] is None


def test_observations_fall_into_buckets():
    histogram: list[float] = []
    for seconds in (0.001, 0.3, 0.3, 1000):
        observe(histogram, seconds)

    assert len(histogram) == len(BOUNDS_S) + 2
    assert histogram[0] == 1
    assert sum(histogram[:-1]) == 4
    assert histogram[-1] == pytest.approx(1000.601)


def test_counters_of_an_ended_process_and_its_successor_add_up():
    first = {"tasks": {"a": {"completed": 2}}, "stalled": 1, "running": 7}
    second = {"tasks": {"a": {"completed": 1, "failed": 1}, "b": {"completed": 1}}}

    total = added(counters_of(first), counters_of(second))

    assert total == {
        "tasks": {"a": {"completed": 3, "failed": 1}, "b": {"completed": 1}},
        "stalled": 1,
    }


def test_numbers_of_very_many_steps_are_cut_into_portions_and_put_together_again():
    steps = [f"a_step_with_a_long_name_{number}" for number in range(2000)]
    numbers = {
        "running": 3,
        "tasks": {step: {"completed": 123456} for step in steps},
        "task_seconds": {step: [0.123456] * (len(BOUNDS_S) + 2) for step in steps},
        "stalled": 1,
    }

    parts = list(portions(numbers))
    known: dict[str, object] = {}
    for part in parts:
        known = merged(known, part)

    assert known == numbers
    assert parts[0] == {"running": 3, "stalled": 1}
    assert all(len(encode(Heartbeat(part))) <= MAX_MESSAGE_BYTES for part in parts)


def test_metrics_are_openmetrics_text():
    tree, _ = on_exit(running("a", "b"), "worker b", CANNOT, 1.0)
    histogram: list[float] = []
    observe(histogram, 0.3)
    counters = {
        "worker a": {
            "tasks": {"pay": {"completed": 3}},
            "task_seconds": {"pay": histogram},
            "wakes": {"fallback": 2},
            "database_errors": {"40P01": 1},
            "stalled": 4,
        },
        "listener": {"reconnects": 2},
    }
    own = {"restarts": {"worker a": {"killed by SIGKILL": 1}}, "reloads": {"done": 1}}

    status = document(tree, facts(worker__a=ChildFacts(1, 1.0, "x", 10)))
    text = exposition({"status": status, "counters": counters, "own": own}, {})

    for line in (
        'pgflowd_tasks_total{flow="a",step="pay",outcome="completed"} 3',
        'pgflowd_task_seconds_bucket{flow="a",step="pay",le="0.25"} 0',
        'pgflowd_task_seconds_bucket{flow="a",step="pay",le="+Inf"} 1',
        'pgflowd_task_seconds_count{flow="a",step="pay"} 1',
        'pgflowd_wakes_total{flow="a",reason="fallback"} 2',
        'pgflowd_running_tasks{flow="a"} 0',
        'pgflowd_max_concurrency{flow="a"} 10',
        "pgflowd_listener_reconnects_total 2",
        'pgflowd_restarts_total{child="worker a",reason="killed by SIGKILL"} 1',
        "pgflowd_parked_workers 1",
        "pgflowd_stalled_tasks_total 4",
        'pgflowd_database_errors_total{kind="40P01"} 1',
        'pgflowd_reloads_total{result="done"} 1',
        'pgflowd_build_info{version="0.1.0",name="shop"} 1',
    ):
        assert line in text.splitlines()
    assert text.endswith("# EOF\n")


def numbers_of_two_steps() -> dict[str, Any]:
    known = facts(
        worker__a=ChildFacts(1, 1.0, "x", 10, {"oldest_running_s": 2.5, "stuck": 1}),
        sweeper=ChildFacts(2, 1.0, numbers={"waiting": {"a": {"quarantined": 2, "sleep": 1}}}),
    )
    times = {"pay": [1, 0, *[0] * 13, 0.002], "ship": [0, 2, *[0] * 13, 0.016]}
    own = {
        "unserved": {"b": {"queued": 3, "oldest_queued_s": 7.5}},
        "restarts": {}, "reloads": {},
    }  # fmt: skip
    counters = {"worker a": {"task_seconds": times, "missed_notifications": 4}}
    return {"status": document(running("a"), known), "counters": counters, "own": own}


def test_the_classic_format_names_families_as_its_samples_and_knows_no_info():
    text = exposition(numbers_of_two_steps(), {}, TextFormat.CLASSIC)

    lines = text.splitlines()
    assert "# TYPE pgflowd_runs_total counter" in lines
    assert "# TYPE pgflowd_build_info gauge" in lines
    assert "# TYPE pgflowd_task_seconds histogram" in lines
    assert "EOF" not in text and text.endswith("\n")
    samples = {line.split(" ")[0] for line in lines if not line.startswith("#")}
    open_lines = exposition(numbers_of_two_steps(), {}).splitlines()
    assert samples == {line.split(" ")[0] for line in open_lines if not line.startswith("#")}


def test_a_flow_with_many_steps_has_one_histogram_of_all():
    numbers = numbers_of_two_steps()
    times = numbers["counters"]["worker a"]["task_seconds"]
    assert 'pgflowd_task_seconds_count{flow="a",step="ship"} 2' in exposition(numbers, {})

    times.update({f"step_{number}": [0] * 15 + [0.0] for number in range(MAX_STEPS - 1)})

    lines = [each for each in exposition(numbers, {}).splitlines() if "task_seconds_" in each]
    assert 'pgflowd_task_seconds_bucket{flow="a",step="",le="0.005"} 1' in lines
    assert 'pgflowd_task_seconds_bucket{flow="a",step="",le="+Inf"} 3' in lines
    assert 'pgflowd_task_seconds_sum{flow="a",step=""} 0.018' in lines
    assert len(lines) == 17


def test_the_facts_of_the_daemon_and_of_flows_that_nobody_serves_are_metrics():
    lines = exposition(numbers_of_two_steps(), {"process_cpu_seconds": {"http": 0.5}}).splitlines()

    for line in (
        'pgflowd_state{state="healthy"} 1',
        'pgflowd_state{state="draining"} 0',
        "pgflowd_ready 0",  # the database is not known to be up
        "pgflowd_database_up 0",
        'pgflowd_oldest_running_seconds{flow="a"} 2.5',
        'pgflowd_stuck_runners{flow="a"} 1',
        'pgflowd_missed_notifications_total{flow="a"} 4',
        'pgflowd_quarantined_tasks{flow="a"} 2',
        'pgflowd_queued_tasks{flow="b"} 3',
        'pgflowd_oldest_queued_seconds{flow="b"} 7.5',
        'pgflowd_process_cpu_seconds_total{process="http"} 0.5',
    ):
        assert line in lines
    unknown = ("pgflowd_database_rtt_seconds", "pgflowd_clock_skew_seconds")
    assert not [line for line in lines if line.startswith(unknown)]


@pytest.mark.parametrize(
    ("tree", "database", "is_well"),
    [
        (running("a"), "up", True),
        (sleeping("a"), "up", True),
        (on_exit(running("a", "b"), "worker a", CANNOT, 1.0)[0], "up", True),
        (running("a"), "down", False),
        (running("a"), "unknown", False),
        (starting("a"), "up", False),
        (on_exit(running("a"), "worker a", CANNOT, 1.0)[0], "up", False),
        (on_exit(running("a"), "worker a", CRASH, 1.0)[0], "up", False),
        (on_stop(running("a"), 1.0, drain=True, within_s=60)[0], "up", False),
        (on_stop(running("a"), 1.0, drain=False)[0], "up", False),
    ],
)
def test_a_daemon_is_ready_while_a_worker_serves_and_the_database_answers(tree, database, is_well):
    reports = {"database": {"state": database, "at": 5}}
    known = facts(sweeper=ChildFacts(1, 1.0, numbers=reports))

    assert is_ready(document(tree, known)) is is_well


@covers("rule 51", "rule 52")
def test_a_crash_of_an_observer_leaves_the_state_alone_and_a_parked_one_is_a_problem():
    tree = running("a", observers=True)
    crashed, _ = on_exit(tree, "http", CRASH, 1.0)
    parked, _ = on_exit(tree, "http", replace(CANNOT, code="E504", reason="in use"), 1.0)

    assert document(crashed, facts())["state"] == "healthy"
    assert document(crashed, facts())["problems"][0]["text"].startswith("http: restarted once")
    assert document(parked, facts())["state"] == "degraded"
    assert document(parked, facts())["problems"] == [
        {"code": "E504", "flow": None, "text": "http: in use", "next": "pgflowd reload"}
    ]


@pytest.mark.timing
def test_the_metrics_of_60_flows_are_rendered_within_20_ms():
    slugs = [f"flow_{number}" for number in range(60)]
    times = {f"step_{number}": [1] * 15 + [0.5] for number in range(6)}
    counters = {
        f"worker {slug}": {"task_seconds": times, "task_wait_seconds": times} for slug in slugs
    }
    numbers = {"status": document(running(*slugs), facts()), "counters": counters, "own": {}}

    def took_s() -> float:
        before = time.perf_counter()
        exposition(numbers, {})
        return time.perf_counter() - before

    assert min(took_s() for _ in range(5)) < 0.02


def test_labels_are_escaped():
    status = document(running("a"), replace(facts(), name='x"\n\\'))

    text = exposition({"status": status, "counters": {}, "own": {}}, {})

    assert 'name="x\\"\\n\\\\"' in text


def test_ready_children_are_listed_in_start_order():
    tree, _ = ready(starting("b", "a"), "listener")

    assert [flow["slug"] for flow in document(tree, facts())["flows"]] == ["b", "a"]
