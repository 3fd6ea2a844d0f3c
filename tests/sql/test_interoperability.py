"""
A real peer: the TypeScript client of the npm registry, 0.8.1, on our schema, beside plain SQL.

It runs under Node, in a process of its own (tests/support/peer.py).
"""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.contract import broken_invariants, while_open
from support.peer import Peer, PeerError

from pgflowd.testing.until import until


@pytest.fixture
def peer(shared):
    peer = Peer(shared.dsn)
    yield peer
    peer.close()


def worker(shared, slug):
    return shared.worker(slug, uuid.uuid4())


def input_of(handled, step, index=0):
    return next(task[3] for task in handled if (task[1], task[2]) == (step, index))


def test_it_defines_flows_by_its_compiled_statements(shared, peer):
    assert peer.ask("compile", "orders") == 5
    assert peer.ask("compile", "orders") == 5

    flow = shared.row("select * from pgflow.flows")
    assert (flow["opt_max_attempts"], flow["opt_base_delay"], flow["opt_timeout"]) == (2, 1, 30)
    steps = shared.rows("select * from pgflow.steps order by step_index")
    assert [(row["step_slug"], row["step_type"], row["deps_count"]) for row in steps] == [
        ("greet", "single", 0),
        ("items", "single", 0),
        ("taxed", "map", 1),
        ("total", "single", 2),
    ]
    assert (steps[2]["opt_max_attempts"], steps[3]["opt_timeout"]) == (3, 9)


def test_it_starts_reads_claims_and_completes(shared, peer):
    peer.ask("compile", "orders")
    run = peer.ask("startFlow", "orders", {"name": "Ada", "prices": [1, 2]})
    assert (run["flow_slug"], run["status"], run["remaining_steps"]) == ("orders", "started", 4)

    messages = peer.ask("readMessages", "orders", 5, 10, 1, 50)
    ids = [message["msg_id"] for message in messages]
    tasks = peer.ask("startTasks", "orders", ids, worker(shared, "orders"))

    assert {message["message"]["step_slug"] for message in messages} == {"greet", "items"}
    assert {task["step_slug"]: task["input"] for task in tasks} == {
        "greet": {"run": {"name": "Ada", "prices": [1, 2]}},
        "items": {"run": {"name": "Ada", "prices": [1, 2]}},
    }
    for task in tasks:
        peer.ask("completeTask", task, [1, 2] if task["step_slug"] == "items" else "hello")
    assert shared.statuses(run["run_id"])["taxed"] == "started"


def test_a_run_id_of_its_own_is_kept(shared, peer):
    peer.ask("compile", "squares")
    given = uuid.uuid4()

    run = peer.ask("startFlow", "squares", [1], str(given))

    assert run["run_id"] == str(given)


def test_it_works_a_whole_flow(shared, peer):
    peer.ask("compile", "orders")
    run = peer.ask("startFlow", "orders", {"name": "Ada", "prices": [1, 2, 3]})["run_id"]

    handled = peer.ask("work", "orders", worker(shared, "orders"), [run])

    assert len(handled) == 6
    assert input_of(handled, "taxed", 2) == 3
    assert input_of(handled, "total") == {
        "run": {"name": "Ada", "prices": [1, 2, 3]},
        "greet": "hello Ada",
        "taxed": [2, 4, 6],
    }
    assert shared.run(run)["output"] == {"total": {"text": "hello Ada, Ada", "sum": 12}}
    assert shared.queue("orders") == [] and broken_invariants(shared) == []


def test_it_works_maps_of_maps(shared, peer):
    peer.ask("compile", "squares")
    runs = [peer.ask("startFlow", "squares", given)["run_id"] for given in ([1, 2, 3], [])]

    peer.ask("work", "squares", worker(shared, "squares"), runs)

    assert [shared.run(run)["output"] for run in runs] == [{"joined": "1 4 9"}, {"joined": None}]


def test_it_reports_failures(shared, peer):
    peer.ask("compile", "Fragile")
    bad = peer.ask("startFlow", "Fragile", {"fail": True, "n": 1})["run_id"]
    good = peer.ask("startFlow", "Fragile", {"n": 2})["run_id"]

    peer.ask("work", "Fragile", worker(shared, "Fragile"), [bad, good])

    assert shared.run(bad)["status"] == "failed"
    assert shared.state(bad, "risky")["error_message"] == "too risky"
    assert shared.run(good)["output"] == {"after": "lucky 2"}
    assert shared.queue("Fragile") == []


def test_its_errors_are_those_of_the_contract(shared, peer):
    peer.ask("compile", "squares")

    with pytest.raises(
        PeerError, match="Flow squares has root map steps but input is not an array"
    ):
        peer.ask("startFlow", "squares", {"no": "array"})
    with pytest.raises(PeerError, match="runs_flow_slug_fkey"):
        peer.ask("startFlow", "nobody", {})


def test_a_falsy_output_reaches_the_next_step_as_null(shared, peer):
    """Its client sends null for 0, false and an empty text, and each arrives as a null."""
    peer.ask("compile", "Fragile")
    run = peer.ask("startFlow", "Fragile", {})["run_id"]
    shared.claim("Fragile")

    peer.ask("completeTask", {"run_id": run, "step_slug": "risky", "task_index": 0}, 0)

    (record,) = shared.claim("Fragile")
    assert record["input"] == {"risky": None}


def plain_worker(shared, slug, runs, handlers):
    """A worker of the present generation, in plain SQL, until these runs have ended."""
    session, me, count = shared.session(autocommit=True), worker(shared, slug), 0
    for _ in while_open(session, runs):
        for record in session.start_tasks(slug, session.read(slug, qty=2), me):
            count += 1
            output = handlers[record["step_slug"]](record["input"], record["flow_input"])
            session.complete(record["run_id"], record["step_slug"], output, record["task_index"])
    return count


def test_both_generations_share_one_flow(shared, peer):
    peer.ask("compile", "orders")
    # from 1 on: upstream's client sends the output 0 as null
    runs = [shared.start("orders", {"name": f"n{n}", "prices": [n, 1]}) for n in range(1, 13)]
    handlers = {
        "greet": lambda _input, run: f"hello {run['name']}",
        "items": lambda _input, run: run["prices"],
        "taxed": lambda price, _run: price * 2,
        "total": lambda deps, _run: {"text": deps["greet"], "sum": sum(deps["taxed"])},
    }

    with ThreadPoolExecutor(2) as threads:
        ours = threads.submit(plain_worker, shared, "orders", runs, handlers)
        theirs = threads.submit(peer.ask, "work", "orders", worker(shared, "orders"), runs)
        done = ours.result(timeout=60) + len(theirs.result(timeout=60))

    assert done == 12 * 5
    for n, run in enumerate(runs, 1):
        output = shared.run(run)["output"]["total"]
        assert output["sum"] == 2 * n + 2 and output["text"].startswith(f"hello n{n}")
    assert shared.queue("orders") == [] and broken_invariants(shared) == []
    assert shared.column("select distinct attempts_count from pgflow.step_tasks") == [1]


def suspend(shared, slug, step):
    """Claim, as a worker of ours, and let the task of this step wait; give the others back."""
    tasks = shared.rows("select * from pgflowd.claim(%s, %s, 10)", slug, worker(shared, slug))
    reports = [
        {name: task[name] for name in ("run_id", "step_slug", "task_index", "token")}
        | {"outcome": "suspended" if task["step_slug"] == step else "released"}
        | {"wait": {"kind": "signal", "name": "go", "checkpoint": "signal go 1"}}
        for task in tasks
    ]
    text = json.dumps(reports, default=str)
    nothing = [None] * len(reports)
    answers = shared.rows("select * from pgflowd.report(%s, %s::text[])", text, nothing)
    assert {answer["verdict"] for answer in answers} == {"queued"}


def test_it_passes_over_a_task_that_waits_and_may_get_it_afterwards(shared, peer):
    peer.ask("compile", "orders")
    run = peer.ask("startFlow", "orders", {"name": "Ada", "prices": [1, 2]})["run_id"]
    suspend(shared, "orders", "greet")

    with ThreadPoolExecutor(1) as threads:
        theirs = threads.submit(peer.ask, "work", "orders", worker(shared, "orders"), [run])
        until(lambda: shared.statuses(run)["taxed"] == "completed", within_s=30)
        assert (shared.statuses(run)["greet"], shared.queue("orders")) == ("started", [])
        assert shared.column("select name from pgflowd.waits") == ["go"]
        assert broken_invariants(shared) == []
        shared.value("select pgflowd._free(array[%s]::uuid[], array['greet'], array[0])", run)
        handled = theirs.result(timeout=60)

    assert [task[1] for task in handled] == ["items", "taxed", "taxed", "greet", "total"]
    assert shared.run(run)["output"] == {"total": {"text": "hello Ada, Ada", "sum": 6}}
    assert shared.queue("orders") == [] and broken_invariants(shared) == []


@pytest.mark.parametrize("form", ["peer", "3 arguments", "5 arguments"])
def test_a_task_that_has_begun_to_wait_since_it_was_read_is_passed_over(shared, peer, form):
    peer.ask("compile", "orders")
    peer.ask("startFlow", "orders", {"name": "Ada", "prices": []})
    ids = [one["msg_id"] for one in peer.ask("readMessages", "orders", 5, 10, 1, 50)]
    shared.show("orders")
    suspend(shared, "orders", "greet")

    if form == "peer":
        tasks = peer.ask("startTasks", "orders", ids, worker(shared, "orders"))
    elif form == "3 arguments":
        tasks = shared.start_tasks("orders", ids)
    else:
        query = "select * from pgflow.start_tasks('orders', %s::bigint[], %s, 'orders')"
        tasks = shared.rows(query, ids, worker(shared, "orders"))

    assert len(ids) == 2 and [task["step_slug"] for task in tasks] == ["items"]
    assert broken_invariants(shared) == []


def test_a_message_that_another_program_deleted_is_still_an_error(shared, peer):
    peer.ask("compile", "orders")
    peer.ask("startFlow", "orders", {"name": "Ada", "prices": []})
    ids = shared.read("orders")
    shared.value("select pgmq.delete('orders', %s::bigint)", ids[0])

    with pytest.raises(PeerError, match="their messages are missing"):
        peer.ask("startTasks", "orders", ids, worker(shared, "orders"))
    assert shared.column("select distinct status from pgflow.step_tasks") == ["queued"]


def test_it_starts_works_and_compiles_the_first_version_of_a_flow(shared, peer):
    """Once there is a newer one, to which starts by name go."""
    peer.ask("compile", "squares")
    before = peer.ask("startFlow", "squares", [1, 2])["run_id"]
    shape = {"steps": [{"slug": "only", "stepType": "map", "dependencies": []}]}
    shared.value("select pgflowd.deploy_version('squares', %s::jsonb)", json.dumps(shape))
    by_name = shared.value("select run_id from pgflowd.start('squares', '[3]')")

    assert peer.ask("compile", "squares") == 4
    after = peer.ask("startFlow", "squares", [3])["run_id"]
    peer.ask("work", "squares", worker(shared, "squares"), [before, after])

    assert [shared.run(run)["output"] for run in (before, after)] == [
        {"joined": "1 4"}, {"joined": "9"},
    ]  # fmt: skip
    assert shared.run(by_name)["flow_slug"] == "squares_2"
    assert shared.run(by_name)["status"] == "started"
