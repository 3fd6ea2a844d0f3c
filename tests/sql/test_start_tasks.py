"""The claim, and what a handler gets as its input."""

import uuid
from itertools import pairwise
from pathlib import Path

import psycopg
import pytest
from support.contract import ContractSession
from support.covers import covers


def test_a_claimed_task_is_started(suite):
    suite.flow("f", "a")
    run = suite.start("f", {"x": 1})
    worker = suite.worker("f")

    (record,) = suite.claim("f")

    task = suite.task(run, "a")
    assert {key: record[key] for key in record if key != "attempts_count"} == {
        "flow_slug": "f",
        "run_id": run,
        "step_slug": "a",
        "input": {},
        "msg_id": task["message_id"],
        "task_index": 0,
        "flow_input": {"x": 1},
    }
    assert (task["status"], task["attempts_count"]) == ("started", 1)
    assert task["started_at"] == suite.value("select now()")
    assert task["last_worker_id"] == worker


def test_the_record_comes_in_the_published_order(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.worker("f")

    row = suite.conn.execute(
        "select * from pgflow.start_tasks(%s, %s, %s)",
        ("f", suite.active("f"), suite.worker("f")),
    ).fetchone()

    assert row[:7] == ("f", run, "a", {}, suite.task(run, "a")["message_id"], 0, {})


def test_parameters_are_given_by_name(suite):
    suite.flow("f", "a")
    suite.start("f")

    records = suite.rows(
        "select * from pgflow.start_tasks(flow_slug => 'f', msg_ids => %s, worker_id => %s)",
        suite.active("f"),
        suite.worker("f"),
    )

    assert len(records) == 1


# -- input -------------------------------------------------------------------------------------


def test_only_a_root_single_step_gets_the_flow_input(suite):
    suite.flow("f", "r", "d: r", "m*: d", "n*: m", "e: n")
    run = suite.start("f", {"x": 1})
    seen = {}
    outputs = {"r": "r!", "d": [10, 20], "e": "end"}
    while records := suite.claim("f"):
        for record in records:
            key = (record["step_slug"], record["task_index"])
            seen[key] = (record["input"], record["flow_input"])
            output = outputs.get(record["step_slug"], {"from": record["input"]})
            suite.complete(run, record["step_slug"], output, record["task_index"])

    assert seen == {
        ("r", 0): ({}, {"x": 1}),
        ("d", 0): ({"r": "r!"}, None),
        ("m", 0): (10, None),
        ("m", 1): (20, None),
        ("n", 0): ({"from": 10}, None),
        ("n", 1): ({"from": 20}, None),
        ("e", 0): ({"n": [{"from": {"from": 10}}, {"from": {"from": 20}}]}, None),
    }
    assert suite.value("select count(*) from pgflow.step_tasks where status <> 'completed'") == 0


def test_the_flow_input_of_others_is_sql_null(suite):
    suite.flow("f", "m*")
    suite.start("f", [1])

    assert suite.value(
        "select flow_input is null from pgflow.start_tasks('f', %s, %s)",
        suite.active("f"),
        suite.worker("f"),
    )


@pytest.mark.parametrize("element", [1, "x", None, {"a": 1}, [1, 2], True, []])
def test_an_element_of_a_root_map_comes_bare(suite, element):
    suite.flow("f", "m*")
    suite.start("f", ["first", element])

    records = suite.claim("f")

    assert [record["input"] for record in records] == ["first", element]


@pytest.mark.parametrize("element", [1, "x", None, {"a": 1}, [1, 2], True, []])
def test_an_element_of_a_dependent_map_comes_bare(suite, element):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", [element, "last"])

    records = suite.claim("f")

    assert [record["input"] for record in records] == [element, "last"]


def test_json_null_as_an_element_is_json_null_and_not_sql_null(suite):
    suite.flow("f", "m*")
    suite.start("f", [None])

    assert suite.value(
        "select input = 'null' from pgflow.start_tasks('f', %s, %s)",
        suite.active("f"),
        suite.worker("f"),
    )


def test_a_dependent_step_gets_all_its_dependencies_under_their_names(suite):
    suite.flow("f", "a", "b", "m*: a", "c: a b m")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", [1, 2])
    suite.complete(run, "b", {"deep": {"er": None}})
    for record in suite.claim("f"):
        suite.complete(run, "m", record["input"] * 10, record["task_index"])

    (record,) = suite.claim("f")

    assert record["input"] == {"a": [1, 2], "b": {"deep": {"er": None}}, "m": [10, 20]}


def test_there_is_no_run_key_by_default(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f", {"x": 1})

    (first,) = suite.claim("f")
    suite.complete(run, "a", 1)
    (second,) = suite.claim("f")

    assert (first["input"], second["input"]) == ({}, {"a": 1})


def test_a_skipped_dependency_has_no_key(suite):
    suite.flow("f", "a", ("s", {"required_input_pattern": {"x": 1}}), "b: a s", "c: s")
    run = suite.start("f")
    records = suite.claim("f")
    assert [(record["step_slug"], record["input"]) for record in records] == [("a", {}), ("c", {})]
    assert [record["flow_input"] for record in records] == [{}, None]

    suite.complete(run, "a", 1)

    (record,) = suite.claim("f")
    assert record["input"] == {"a": 1}


def test_a_sql_null_output_is_json_null_in_the_input(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    suite.claim("f")
    suite.complete(run, "a", sql_null=True)

    (record,) = suite.claim("f")

    assert record["input"] == {"a": None}


def test_one_call_covers_many_runs_and_steps(suite):
    suite.flow("f", "a", "m*")
    runs = [suite.start("f", list(range(n))) for n in (1, 2, 3)]

    records = suite.claim("f")

    assert len(records) == 3 + 6
    assert {record["run_id"] for record in records} == set(runs)
    for record in records:
        if record["step_slug"] == "m":
            assert record["input"] == record["task_index"]


# -- visibility --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flow_timeout", "step_timeout", "wanted"), [(60, None, 62), (60, 20, 22), (10, 300, 302)]
)
def test_the_claim_hides_the_message_for_the_timeout_and_two_seconds(
    suite, flow_timeout, step_timeout, wanted
):
    suite.flow("f", ("a", {"timeout": step_timeout}), timeout=flow_timeout)
    run = suite.start("f")

    suite.claim("f")

    assert wanted - 1 < suite.delay("f", suite.task(run, "a")["message_id"]) <= wanted


def test_a_changed_timeout_takes_effect_at_the_next_claim(suite):
    suite.flow("f", "a", ("b", {"timeout": 10}))
    run = suite.start("f")
    suite.do("update pgflow.flows set opt_timeout = 200")
    suite.do("update pgflow.steps set opt_timeout = 400 where step_slug = 'b'")

    suite.claim("f")

    seconds = [suite.delay("f", suite.task(run, slug)["message_id"]) for slug in "ab"]
    assert [round(second) for second in seconds] == [202, 402]


def test_each_message_gets_its_own_step_s_timeout(suite):
    suite.flow("f", ("a", {"timeout": 10}), ("b", {"timeout": 100}), "c")
    run = suite.start("f")

    suite.claim("f")

    seconds = [suite.delay("f", suite.task(run, slug)["message_id"]) for slug in "abc"]
    assert [round(second) for second in seconds] == [12, 102, 62]


def test_the_claim_does_not_count_as_a_read(suite):
    suite.flow("f", "a")
    suite.start("f")

    suite.claim("f")

    assert suite.queue("f")[0]["read_ct"] == 1


# -- what is passed over -----------------------------------------------------------------------


@pytest.mark.parametrize("msg_ids", [None, [], [None], [999], [-1, 0]])
def test_nothing_to_claim_gives_no_rows(suite, msg_ids):
    suite.flow("f", "a")
    suite.start("f")
    before = suite.snapshot()

    assert suite.start_tasks("f", msg_ids) == []
    assert suite.snapshot() == before


def test_unknown_ids_beside_known_ones_are_passed_over(suite):
    suite.flow("f", "a")
    suite.start("f")

    assert len(suite.start_tasks("f", [*suite.active("f"), 999, None])) == 1


def test_an_id_given_twice_starts_one_task(suite):
    suite.flow("f", "a")
    run = suite.start("f")

    assert len(suite.start_tasks("f", suite.active("f") * 2)) == 1
    assert suite.task(run, "a")["attempts_count"] == 1


def test_a_started_task_is_not_handed_out_again(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.claim("f")
    before = suite.snapshot()

    assert suite.start_tasks("f", suite.active("f"), suite.worker("f", uuid.uuid4())) == []
    assert suite.snapshot() == before
    assert suite.task(run, "a")["attempts_count"] == 1


def test_tasks_that_ended_are_passed_over(suite):
    suite.flow("f", "a", ("b", {"when_exhausted": "skip"}), max_attempts=1)
    run = suite.start("f")
    ids = [record["msg_id"] for record in suite.claim("f")]
    suite.complete(run, "a")
    suite.fail(run, "b")

    assert suite.start_tasks("f", ids) == []


def test_queued_tasks_of_a_failed_run_are_passed_over(suite):
    suite.flow("f", "a", "b", max_attempts=1)
    run = suite.start("f")
    ids = suite.active("f")
    suite.start_tasks("f", [suite.task(run, "a")["message_id"]])
    suite.fail(run, "a")
    assert suite.task(run, "b")["status"] == "queued"

    assert suite.start_tasks("f", ids) == []
    assert suite.task(run, "b")["attempts_count"] == 0


def test_queued_tasks_of_a_skipped_step_are_passed_over(suite):
    suite.flow("f", ("m*", {"when_exhausted": "skip"}), "other", max_attempts=1)
    run = suite.start("f", [1, 2])
    ids = suite.active("f")
    suite.start_tasks("f", [suite.task(run, "m", 0)["message_id"]])
    suite.fail(run, "m", "x", 0)

    records = suite.start_tasks("f", ids)

    assert [record["step_slug"] for record in records] == ["other"]


def test_ids_of_another_flow_s_queue_are_not_ours(suite):
    for slug in ("f", "g"):
        suite.flow(slug, "a")
        suite.start(slug)
    assert suite.active("f") == suite.active("g") == [1]

    records = suite.start_tasks("g", [1])

    assert [record["flow_slug"] for record in records] == ["g"]
    assert suite.value("select status from pgflow.step_tasks where flow_slug = 'f'") == "queued"


def test_an_unknown_flow_gives_no_rows(suite):
    assert suite.start_tasks("nobody", [1, 2]) == []


def test_the_worker_must_exist(suite):
    suite.flow("f", "a")
    suite.start("f")

    error = suite.error("select pgflow.start_tasks('f', %s, %s)", suite.active("f"), uuid.uuid4())

    assert isinstance(error, psycopg.errors.ForeignKeyViolation)
    assert error.diag.constraint_name == "step_tasks_last_worker_id_fkey"


def test_a_worker_that_goes_leaves_its_tasks(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.claim("f")

    suite.do("delete from pgflow.workers")

    assert suite.task(run, "a")["last_worker_id"] is None
    assert suite.task(run, "a")["status"] == "started"


def test_a_retry_is_claimed_with_one_attempt_more(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    suite.claim("f")
    suite.fail(run, "a", "first")
    suite.show("f")
    other = suite.worker("f", uuid.uuid4())

    (record,) = suite.start_tasks("f", suite.read("f"), other)

    task = suite.task(run, "a")
    assert (task["attempts_count"], task["last_worker_id"]) == (2, other)
    assert (task["status"], task["error_message"]) == ("started", "first")
    assert record.get("attempts_count", 2) == 2


def test_a_claim_sends_no_event(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    before = suite.events(run)

    suite.claim("f")

    assert suite.events(run) == before


def test_two_claimers_of_one_message_get_one_record(shared):
    shared.flow("f", "a")
    shared.start("f")
    worker = shared.worker("f")
    ids = shared.active("f")
    one = shared.session()
    assert len(one.start_tasks("f", ids, worker)) == 1
    two = shared.session(autocommit=True)
    two.do("set lock_timeout = '300ms'")

    try:
        second = two.start_tasks("f", ids, worker)
    except psycopg.errors.LockNotAvailable:
        second = None
    one.conn.commit()

    assert not second
    assert two.start_tasks("f", ids, worker) == []
    assert shared.value("select attempts_count from pgflow.step_tasks") == 1


@covers("outside 15", "promise 8")
@pytest.mark.parametrize("major", [15, 18])
def test_the_slowest_of_100_calls_of_a_session_costs_less_than_15_times_their_mean(
    server_of, major
):
    """Which is the first one, when statements are planned; counted in CPU, not in time."""
    with server_of(major).database() as scratch:
        first = ContractSession(scratch.connect(autocommit=False))
        first.flow("f", "m*")
        first.start("f", list(range(300)))
        worker, ids = first.worker("f"), first.read("f", 300)
        first.conn.commit()

        def slowest_to_mean(messages):
            fresh = ContractSession(scratch.connect(autocommit=False))
            schedule = Path(f"/proc/{fresh.conn.info.backend_pid}/schedstat")
            at = [int(schedule.read_text().split()[0])]
            for message in messages:
                assert len(fresh.start_tasks("f", [message], worker)) == 1
                at.append(int(schedule.read_text().split()[0]))
            costs = [after - before for before, after in pairwise(at)]
            return max(costs) / (sum(costs) / len(costs))

        assert min(slowest_to_mean(ids[each::3]) for each in range(3)) < 15
