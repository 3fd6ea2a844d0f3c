"""Ready steps get their messages and tasks."""

import uuid


def start_ready(suite, run):
    suite.do("select pgflow.start_ready_steps(run_id => %s)", run)


def make_ready(suite, run, step, **columns):
    values = "".join(f", {name} = {value}" for name, value in columns.items())
    suite.do(
        f"update pgflow.step_states set remaining_deps = 0{values}"
        " where run_id = %s and step_slug = %s",
        run,
        step,
    )


def test_a_ready_step_starts_with_its_message(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")
    make_ready(suite, run, "b")

    start_ready(suite, run)

    state = suite.state(run, "b")
    assert (state["status"], state["remaining_tasks"], state["initial_tasks"]) == ("started", 1, 1)
    assert state["started_at"] == suite.value("select now()")
    assert suite.task(run, "b")["message_id"] in suite.active("f")
    payload = suite.payload(run, "step:b:started")
    assert payload["remaining_tasks"] == 1 and payload["remaining_deps"] == 0


def test_started_steps_are_not_started_again(suite):
    suite.flow("f", "a")
    run = suite.start("f")
    before, events = suite.snapshot(), suite.events(run)

    start_ready(suite, run)

    assert suite.snapshot() == before and suite.events(run) == events


def test_a_step_with_dependencies_left_stays_created(suite):
    suite.flow("f", "a", "b: a")
    run = suite.start("f")

    start_ready(suite, run)

    assert suite.statuses(run)["b"] == "created"


def test_a_map_with_an_unknown_number_of_tasks_stays_created(suite):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    make_ready(suite, run, "m")

    start_ready(suite, run)

    assert suite.statuses(run)["m"] == "created"
    assert suite.tasks(run, "m") == []


def test_a_map_without_tasks_is_not_started(suite):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    make_ready(suite, run, "m", initial_tasks=0)

    start_ready(suite, run)

    assert suite.statuses(run)["m"] == "created"


def test_a_map_gets_a_task_for_each_planned_one(suite):
    suite.flow("f", "a", ("m*: a", {"start_delay": 30}))
    run = suite.start("f")
    make_ready(suite, run, "m", initial_tasks=3)

    start_ready(suite, run)

    tasks = suite.tasks(run, "m")
    assert [task["task_index"] for task in tasks] == [0, 1, 2]
    assert suite.state(run, "m")["remaining_tasks"] == 3
    assert all(29 < suite.delay("f", task["message_id"]) <= 30 for task in tasks)
    bodies = {row["msg_id"]: row["message"] for row in suite.queue("f")}
    for task in tasks:
        assert bodies[task["message_id"]] == {
            "flow_slug": "f",
            "run_id": str(run),
            "step_slug": "m",
            "task_index": task["task_index"],
        }


def test_nothing_starts_in_a_failed_or_completed_run(suite):
    suite.flow("f", "a", "b: a", max_attempts=1)
    failed, done = suite.start("f"), suite.start("f")
    suite.claim("f")
    suite.fail(failed, "a")
    suite.do(
        "update pgflow.runs set status = 'completed', completed_at = now() where run_id = %s", done
    )
    for run in (failed, done):
        make_ready(suite, run, "b")

        start_ready(suite, run)

        assert suite.statuses(run)["b"] == "created"


def test_an_unknown_run_is_not_an_error(suite):
    start_ready(suite, uuid.uuid4())


def test_several_ready_steps_start_in_order_of_slug(suite):
    suite.flow("f", "z", "c: z", "a: z", "b: z")
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "z")

    assert suite.events(run)[-3:] == ["step:a:started", "step:b:started", "step:c:started"]
    assert len(suite.active("f")) == 3


def test_a_dependent_map_learns_its_number_from_the_array(suite):
    suite.flow("f", "a", "m*: a")
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a", ["x", "y"])

    state = suite.state(run, "m")
    assert (state["status"], state["initial_tasks"], state["remaining_tasks"]) == ("started", 2, 2)


def test_a_map_behind_a_map_has_as_many_tasks(suite):
    suite.flow("f", "m*", "n*: m")
    run = suite.start("f", [1, 2, 3])
    suite.claim("f")
    for index in (0, 1):
        suite.complete(run, "m", index, index)
    assert suite.state(run, "n")["initial_tasks"] is None

    suite.complete(run, "m", 2, 2)

    assert suite.state(run, "n")["initial_tasks"] == 3
    assert len(suite.tasks(run, "n")) == 3


def test_a_start_delay_holds_for_a_dependent_step_too(suite):
    suite.flow("f", "a", ("b: a", {"start_delay": 40}))
    run = suite.start("f")
    suite.claim("f")

    suite.complete(run, "a")

    assert 39 < suite.delay("f", suite.task(run, "b")["message_id"]) <= 40
    assert suite.claim("f") == []
