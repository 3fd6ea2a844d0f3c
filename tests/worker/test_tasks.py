"""Tasks from the database through worker and runner, and back."""

from __future__ import annotations

import uuid

from support.covers import covers

from pgflowd.testing.until import until

DIAMOND = """
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=5)

    @flow.step
    def website(run):
        return {"url": run["url"], "size": 3}

    @flow.step
    async def sentiment(website):
        return website["size"] * 2

    @flow.step
    def summary(website, ctx):
        assert ctx.flow_input() == {"url": "x"}
        assert ctx.step_output("website") == website
        return "s" * website["size"]

    @flow.step
    def save(sentiment, summary):
        return [sentiment, summary]
"""


def test_a_diamond_runs_to_its_end(start_worker):
    worker = start_worker(DIAMOND)

    run = worker.start_run({"url": "x"})

    assert worker.output(run) == {"save": [6, "sss"]}
    assert worker.outcomes(run) == ["completed"] * 4
    assert worker.drain() == 0


ASKING = """
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=1, timeout=5)

    @flow.step(if_={"never": 1}, when_unmet="skip")
    def summary(run): ...

    @flow.step(depends_on="summary")
    def save(input, ctx):
        assert ctx.step_output("summary") is None
        return ctx.step_output("sumary")
"""


def test_the_output_of_a_skipped_step_is_none_and_that_of_no_step_an_error(start_worker):
    worker = start_worker(ASKING)

    run = worker.start_run({})

    until(lambda: worker.outcomes(run) == ["failed"])
    error = worker.value("select error_message from pgflow.step_tasks where status = 'failed'")
    assert "E201 'sumary' is not a step of flow; did you mean 'summary'?" in error


MAPS = """
    from pgflowd import Flow

    flow = Flow("flow", max_attempts=2, base_delay=0, timeout=5)

    @flow.step
    def items(run): return run["items"]

    @flow.map(over="items")
    def double(item): return item * 2

    @flow.step
    def total(double): return sum(double)
"""


@covers("row 57")
def test_a_map_of_nothing_completes(start_worker):
    worker = start_worker(MAPS)

    run = worker.start_run({"items": []})

    assert worker.output(run) == {"total": 0}


@covers("row 57")
def test_a_map_of_thousands_keeps_the_order_of_its_elements(start_worker):
    worker = start_worker(MAPS)

    run = worker.start_run({"items": list(range(10_000))})

    assert worker.output(run, 60) == {"total": 9_999 * 10_000}
    query = "select output from pgflow.step_states where step_slug = 'double'"
    assert worker.value(query) == [2 * n for n in range(10_000)]


@covers("row 56")
def test_no_array_before_a_map_fails_the_run_and_the_worker_continues(start_worker):
    worker = start_worker(MAPS)

    wrong = worker.start_run({"items": {"not": "an array"}})
    assert worker.failed(wrong, 5)

    assert worker.output(worker.start_run({"items": [1]})) == {"total": 2}


@covers("outside 2")
def test_too_many_elements_before_a_map_fail_its_task_for_good(start_worker):
    worker = start_worker(MAPS)
    worker.conn.execute("select pgflowd.set_setting('max_map_elements', '1000', 'test')")

    wrong = worker.start_run({"items": [0] * 1001})
    assert worker.failed(wrong, 5)

    ((_, outcome, text),) = worker.attempts(wrong)
    assert outcome == "failed"
    assert text.startswith("E404 the database refused the report: the output of step ")
    assert "has 1001 elements, and a map may have 1000" in text
    assert worker.output(worker.start_run({"items": [1]})) == {"total": 2}


@covers("row 75")
def test_a_client_idle_in_a_transaction_delays_no_other_client(start_worker, database):
    worker = start_worker(DIAMOND)
    idle = database.connect(autocommit=False)
    idle.execute("select pgflow.start_flow('flow', '{\"url\": \"y\"}')")

    run = worker.start_run({"url": "x"})

    assert worker.completed(run, 5)
    idle.rollback()


@covers("G2")
def test_chains_that_are_executed_again_report_each_outcome_once(start_worker):
    module = """
        from pgflowd import Flow
        flow = Flow("flow", timeout=5)

        @flow.step
        def a(run): return run["n"]

        @flow.step
        def b(a): return a + 1

        @flow.step
        def c(b): return b + 1
    """
    worker = start_worker(module, max_concurrency=3)

    runs = [worker.start_run({"n": n}) for n in range(100)]

    assert [worker.output(run, 20) for run in runs] == [{"c": n + 2} for n in range(100)]
    query = "select count(*), count(distinct (run_id, step_slug)) from pgflowd.attempts"
    assert worker.conn.execute(query).fetchone() == (300, 300)


NEVER_ASKED = """
    from pgflowd import Flow
    from pgflowd.processes.runner.context import RunnerContext

    def refuse(self): raise AssertionError("it asked")

    RunnerContext.flow_input = refuse
    flow = Flow("flow", max_attempts=1)

    @flow.step
    def first(run): return 1

    @flow.step
    def one(first, run): return run

    @flow.step(depends_on="first")
    def other(input): return input
"""


def test_a_later_step_gets_the_input_of_its_run_without_asking_for_it(start_worker):
    worker = start_worker(NEVER_ASKED)
    runs = [worker.start_run({"number": number}) for number in range(5)]

    for number, run in enumerate(runs):
        assert worker.completed(run)
        assert worker.output(run) == {
            "one": {"number": number},
            "other": {"run": {"number": number}, "first": 1},
        }


def test_a_later_step_asks_for_an_input_that_is_large(start_worker):
    worker = start_worker(NEVER_ASKED.replace("RunnerContext.flow_input = refuse", ""))
    large = [uuid.uuid4().hex for _ in range(5_000)]

    run = worker.start_run(large)

    assert worker.completed(run)
    assert worker.output(run)["one"] == large
