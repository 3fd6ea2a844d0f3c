"""
Random flows against the independent model in Python: same statuses, outputs, counters, events.

One test runs tasks in random order, with late, repeated and misplaced reports, on the model and
on the database side by side. The other lets several connections work at once.
"""

import itertools
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb
from support.contract import ContractSession, broken_invariants, stub_platform, while_open
from support.sql_replay import engine_snapshot

from pgflowd.core.json import SQL_NULL
from pgflowd.errors import MapInput
from pgflowd.testing.engine import Engine

# Random flows for property tests: shapes, inputs, and what each handler does.
#
# A shape is that of pgflow.get_flow_shape with options. What a handler returns is a value drawn
# with the flow, so that two drivers which run the tasks in another order do the same to each of
# them.
SCALARS = st.sampled_from([0, 1, "", "x", None, True, False, {"ok": 1}, {"ok": 2}, {}])
ARRAYS = st.lists(SCALARS, max_size=3)
MODES = ["fail", "skip", "skip-cascade"]


@st.composite
def flows(draw: st.DrawFn, *, order_matters: bool = True) -> dict[str, Any]:
    """A shape, an input, and for each step: what it returns, and how often it fails before."""
    count = draw(st.integers(1, 7))
    steps: list[dict[str, Any]] = []
    handlers: dict[str, dict[str, Any]] = {}
    for index in range(count):
        step = draw(_steps(index, [step["slug"] for step in steps], order_matters))
        steps.append(step)
    mapped = {step["dependencies"][0] for step in steps if _is_dependent_map(step)}
    for step in steps:
        outputs = SCALARS if order_matters else ARRAYS
        fine = ARRAYS if step["slug"] in mapped else st.one_of(SCALARS, ARRAYS)
        rare = draw(st.integers(0, 9)) == 0
        handlers[step["slug"]] = {
            "output": draw(outputs if rare else fine),
            "failures": draw(st.sampled_from([0, 0, 0, 1, 3])),
        }
    root_map = any(step["stepType"] == "map" and not step["dependencies"] for step in steps)
    given = draw(ARRAYS) if root_map else draw(st.sampled_from([{}, {"x": 1}, {"x": 2}, [], "x"]))
    return {"steps": steps, "options": {"baseDelay": 0}, "input": given, "handlers": handlers}


def _is_dependent_map(step: dict[str, Any]) -> bool:
    return step["stepType"] == "map" and bool(step["dependencies"])


@st.composite
def _steps(draw: st.DrawFn, index: int, before: list[str], order_matters: bool) -> dict[str, Any]:
    is_map = draw(st.integers(0, 2)) == 0
    deps = (
        draw(st.lists(st.sampled_from(before), unique=True, max_size=1 if is_map else 3))
        if (before)
        else []
    )
    unmet = draw(st.sampled_from(MODES if order_matters else MODES[1:]))
    exhausted = draw(st.sampled_from(MODES if order_matters else MODES[1:]))
    return {
        "slug": f"s{index}",
        "stepType": "map" if is_map else "single",
        "dependencies": sorted(deps),
        "whenUnmet": unmet,
        "whenExhausted": exhausted,
        "requiredInputPattern": draw(_patterns(deps)),
        "forbiddenInputPattern": draw(_patterns(deps)),
        "options": {
            "maxAttempts": draw(st.sampled_from([0, 1, 2])),
            "startDelay": 0,
            **({"settle": True} if draw(st.integers(0, 5)) == 0 else {}),
        },
    }


@st.composite
def _patterns(draw: st.DrawFn, deps: list[str]) -> dict[str, Any]:
    if draw(st.integers(0, 4)):
        return {"defined": False}
    key = draw(st.sampled_from(deps or ["x"]))
    value = draw(st.sampled_from([1, {"ok": 1}, {}, [], "x"]))
    return {"defined": True, "value": {key: value}}


def attempt_fails(flow: dict[str, Any], slug: str, index: int, attempt: int) -> bool:
    """Does this attempt fail? The handler of a map fails at its odd elements only."""
    is_map = next(s for s in flow["steps"] if s["slug"] == slug)["stepType"] == "map"
    fails = attempt <= flow["handlers"][slug]["failures"]
    return fails and (not is_map or index % 2 == 1)


NAMES = itertools.count()
QUIETLY = {"deadline": None, "suppress_health_check": list(HealthCheck), "print_blob": True}


def create(session, flow):
    slug = f"r{next(NAMES)}"
    shape = {"steps": flow["steps"], "options": flow["options"]}
    session.do("select pgflow._create_flow_from_shape(%s, %s)", slug, Jsonb(shape))
    session.do("select pgflowd._set_undo_options(%s, %s)", slug, Jsonb(shape))
    return slug


def seen(session, slug, run):
    """What `Engine.snapshot` shows, read from the tables."""
    row = session.run(run)
    tasks = session.rows(
        f"""select task.*, not exists (select from pgmq.q_{slug} m where m.msg_id = task.message_id)
              as archived, task.output is null as void
              from pgflow.step_tasks task where run_id = %s order by step_slug, task_index""",
        run,
    )
    states = session.rows(
        "select *, output is null as void from pgflow.step_states where run_id = %s", run
    )
    no_output = session.value("select output is null from pgflow.runs where run_id = %s", run)
    return {
        "status": row["status"],
        "remaining_steps": row["remaining_steps"],
        **({} if no_output else {"output": row["output"]}),
        "steps": {
            state["step_slug"]: {
                **{
                    name: state[name]
                    for name in (
                        "status", "remaining_deps", "initial_tasks", "remaining_tasks",
                        "error_message", "skip_reason",
                    )
                },
                **({} if state["void"] else {"output": state["output"]}),
                "tasks": [
                    {
                        **{
                            name: task[name]
                            for name in ("status", "attempts_count", "error_message", "archived")
                        },
                        **({} if task["void"] else {"output": task["output"]}),
                    }
                    for task in tasks
                    if task["step_slug"] == state["step_slug"]
                ],
            }
            for state in states
        },
    }  # fmt: skip


def events_of_model(run):
    return [
        event.type if event.step is None else event.type.replace(":", f":{event.step}:")
        for event in run.events
    ]


class SideBySide:
    """One run on the model and in the database; each action is done to both and compared."""

    def __init__(self, suite, flow):
        self.suite, self.flow = suite, flow
        self.model = Engine({"steps": flow["steps"], "options": flow["options"]})
        self.slug = create(suite, flow)
        self.run_id = uuid.uuid4()

    def start(self):
        self.model.start(self.flow["input"], str(self.run_id))
        self.suite.do(
            "select pgflow.start_flow(%s, %s, %s)",
            self.slug,
            Jsonb(self.flow["input"]),
            self.run_id,
        )
        self.compare()

    def tasks(self):
        states = self.model.states.values()
        return [task for state in states for task in state.tasks]

    def claim(self, task):
        row = self.suite.task(self.run_id, task.step_slug, task.index)
        expected = self.model.start_tasks([task])
        found = self.suite.start_tasks(self.slug, [row["message_id"]])
        assert [record["input"] for record in found] == [record.input for record in expected]
        for record, model in zip(found, expected, strict=True):
            given = None if model.flow_input is SQL_NULL else model.flow_input
            assert record["flow_input"] == given

    def complete(self, task):
        output = self.flow["handlers"][task.step_slug]["output"]
        self.model.complete((str(self.run_id), task.step_slug, task.index), output)
        self.suite.complete(self.run_id, task.step_slug, output, task.index)

    def fail(self, task):
        text = f"boom {task.step_slug} {task.index} {task.attempts}"
        self.model.fail((str(self.run_id), task.step_slug, task.index), text)
        self.suite.fail(self.run_id, task.step_slug, text, task.index)

    def report(self, task):
        if attempt_fails(self.flow, task.step_slug, task.index, task.attempts):
            self.fail(task)
        else:
            self.complete(task)

    def complete_together(self, tasks):
        """In one call there; here one by one, those last that violate their type."""
        outputs = [self.flow["handlers"][task.step_slug]["output"] for task in tasks]
        pairs = list(zip(tasks, outputs, strict=True))
        for task, output in sorted(pairs, key=lambda pair: not isinstance(pair[1], list)):
            self.model.complete((str(self.run_id), task.step_slug, task.index), output)
        self.suite.do("select from pgflow.runs where run_id = %s for no key update", self.run_id)
        self.suite.do(
            "select * from pgflow._complete_tasks(array_fill(%s::uuid, array[%s]), %s, %s, %s)",
            self.run_id,
            len(tasks),
            [task.step_slug for task in tasks],
            [task.index for task in tasks],
            [Jsonb(output) for output in outputs],
        )

    def compare(self):
        assert seen(self.suite, self.slug, self.run_id) == engine_snapshot(self.model)


def act(both, task, chance):
    """Do the sensible thing to a task, or now and then a foolish one."""
    if chance < 8 and task.status == "queued":
        both.claim(task)
    elif chance < 8:
        both.report(task)
    else:
        [both.fail, both.claim][chance - 8](task)


def go_the_same_way(suite, flow, choices):
    both = SideBySide(suite, flow)
    both.start()
    for which, chance in choices:
        if tasks := both.tasks():
            act(both, tasks[which % len(tasks)], chance)
            both.compare()
    while open_tasks := [t for t in both.tasks() if t.is_open and not t.is_archived]:
        act(both, open_tasks[0], 0)
        both.compare()

    model = both.model
    assert suite.events(both.run_id) == events_of_model(model)
    assert model.status != "started" and suite.queue(both.slug) == []
    assert broken_invariants(suite) == []


def test_every_flow_goes_the_way_of_the_model(contract_database):
    choices = st.lists(st.tuples(st.integers(0, 99), st.integers(0, 9)), max_size=30)
    with psycopg.connect(contract_database.dsn) as conn:

        @settings(max_examples=120, **QUIETLY)
        @given(flows(), choices)
        def goes_that_way(flow, choices):
            try:
                stub_platform(conn)
                go_the_same_way(ContractSession(conn), flow, choices)
            finally:
                conn.rollback()

        goes_that_way()


def go_the_same_way_in_batches(suite, flow, chance):
    both = SideBySide(suite, flow)
    both.start()
    model = both.model
    while open_tasks := [task for task in both.tasks() if task.is_open]:
        if model.status == "failed":
            assert suite.run(both.run_id)["status"] == "failed"
            return
        for task in open_tasks:
            if task.status == "queued":
                both.claim(task)
        started = [task for task in both.tasks() if task.status == "started"]
        both.complete_together(chance.sample(started, chance.randint(1, len(started))))
        if model.status != "failed":  # else the order of reports decides what was done before
            both.compare()
        assert broken_invariants(suite) == []

    if model.status != "failed":  # as above
        assert sorted(suite.events(both.run_id)) == sorted(events_of_model(model))


def test_reports_in_batches_come_to_what_single_ones_do(contract_database):
    with psycopg.connect(contract_database.dsn) as conn:

        @settings(max_examples=80, **QUIETLY)
        @given(flows(), st.randoms(use_true_random=False))
        def comes_to_that(flow, chance):
            try:
                stub_platform(conn)
                go_the_same_way_in_batches(ContractSession(conn), flow, chance)
            finally:
                conn.rollback()

        comes_to_that()


def test_a_root_map_without_an_array_is_refused_by_both(suite):
    root_map = {"slug": "m", "stepType": "map", "dependencies": []}
    both = SideBySide(suite, {"steps": [root_map], "options": {}})

    with pytest.raises(MapInput) as refused:
        both.model.start({"x": 1})
    error = suite.error("select pgflow.start_flow(%s, %s)", both.slug, Jsonb({"x": 1}))

    tail = "has root map steps but input is not an array (got object)"
    assert error.diag.message_primary == f"Flow {both.slug} {tail}"
    assert tail in str(refused.value)


def work(shared, flow, slug, runs):
    """A worker of its own connection: claim, handle, report, until all runs have ended."""
    session = shared.session(autocommit=True)
    for _ in while_open(session, runs):
        for record in session.start_tasks(slug, session.read(slug, qty=3, vt=60)):
            key = (record["step_slug"], record["task_index"])
            attempt = session.task(record["run_id"], *key)["attempts_count"]
            if attempt_fails(flow, *key, attempt):
                session.fail(record["run_id"], key[0], f"boom {key[0]}", key[1])
            else:
                session.complete(
                    record["run_id"], key[0], flow["handlers"][key[0]]["output"], key[1]
                )
    return True


def finish_model(flow, run_id):
    model = Engine({"steps": flow["steps"], "options": flow["options"]})
    model.start(flow["input"], run_id)
    while records := model.claim():
        for record in records:
            if attempt_fails(flow, record.step_slug, record.task_index, record.attempt):
                model.fail(record.key, f"boom {record.step_slug}")
            else:
                model.complete(record.key, flow["handlers"][record.step_slug]["output"])
    return engine_snapshot(model)


def without_tasks(snapshot):
    steps = {
        slug: {name: value for name, value in step.items() if name != "tasks"}
        for slug, step in snapshot["steps"].items()
    }
    return {**snapshot, "steps": steps}


def deadlocks(shared):
    shared.do("select pg_stat_clear_snapshot()")
    return shared.value("select deadlocks from pg_stat_database where datname = current_database()")


def ends(session, runs):
    return session.column("select status from pgflow.runs where run_id = any (%s)", runs)


@pytest.mark.parametrize("order_matters", [False, True])
def test_several_connections_at_once_come_to_the_same_end(shared, order_matters):
    """Where the order of reports decides (a failing run), only the invariants are compared."""

    @settings(max_examples=12, **QUIETLY)
    @given(flows(order_matters=order_matters))
    def comes_to_its_end(flow):
        slug = create(shared, flow)
        shared.worker(slug)
        runs = [shared.start(slug, flow["input"]) for _ in range(3)]
        with ThreadPoolExecutor(3) as threads:
            workers = [threads.submit(work, shared, flow, slug, runs) for _ in range(3)]
            assert all(worker.result(timeout=30) for worker in workers)

        assert "started" not in ends(shared, runs)
        assert shared.queue(slug) == []
        assert broken_invariants(shared) == []
        if not order_matters:
            wanted = without_tasks(finish_model(flow, "run"))
            for run in runs:
                assert without_tasks(seen(shared, slug, run)) == wanted

    comes_to_its_end()
    assert deadlocks(shared) == 0
