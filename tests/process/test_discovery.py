"""Discovery from outside: the served flows when entries overlap or contradict each other."""

from __future__ import annotations

import signal

import pytest
from support.covers import covers
from support.daemon import FLOW

from pgflowd.testing.until import until

BETA = FLOW.format(slug="beta", attempts=3).replace("flow =", "other =")
TWO = FLOW.format(slug="alpha", attempts=3) + BETA.replace("@flow", "@other")


def test_a_module_and_one_of_its_flows_may_both_be_listed(setup, database):
    setup.flow("alpha")
    setup.entries.append("flow_alpha:flow")
    daemon = setup.serve()

    assert [flow["slug"] for flow in daemon.ask()["flows"]] == ["alpha"]


@covers("rule 3", "row 101")
def test_a_flow_that_two_modules_define_is_an_error_of_the_second(setup, database):
    setup.flow("alpha")
    setup.module("copy_of_it", FLOW.format(slug="alpha", attempts=3))
    setup.module("other_case", FLOW.format(slug="Alpha", attempts=3))
    daemon = setup.serve()

    flows = {flow["slug"]: flow for flow in daemon.ask()["flows"]}

    assert flows["alpha"]["state"] == "up"
    assert flows["copy_of_it"]["error"]["code"] == "E213"
    assert flows["other_case"]["error"]["code"] == "E207"


@covers("rule 3")
def test_all_errors_of_a_definition_are_reported_with_file_and_line(setup, database):
    source = """
from pgflowd import Flow
flow = Flow("wrong")

@flow.step
def one(run, nobody): ...

@flow.step
def two(run, neither): ...
"""
    setup.module("wrong", source)
    daemon = setup.start()

    assert daemon.ended() == 78
    problems = daemon.events("supervisor.problem")
    assert [record["code"] for record in problems] == ["E201", "E201"]
    assert [record["place"] for record in problems] == ["wrong.py:5", "wrong.py:8"]


@covers("newcomer 21")
def test_errors_of_several_flows_of_a_file_stand_in_the_order_of_the_file(setup, database):
    source = """
from pgflowd import Flow
flow, other = Flow("wrong"), Flow("worse")

@flow.step
def one(run, nobody): ...

@other.step
def two(run, neither): ...

@flow.step
def three(run, nothing): ...
"""
    setup.module("wrong", source)
    daemon = setup.start()

    assert daemon.ended() == 78
    problems = daemon.events("supervisor.problem")
    assert [record["place"] for record in problems] == ["wrong.py:5", "wrong.py:8", "wrong.py:11"]


READING = """
import os
from pgflowd import Flow
flow = Flow("reads")
URL = os.getenv("SHOP_DATABASE")
HOST = {read}

@flow.step
def one(run): ...
"""


@covers("newcomer 10")
@pytest.mark.parametrize(
    ("read", "text", "remedy"),
    [
        ('os.environ["SHOP_DATABASE"]', "SHOP_DATABASE is a secret", "use ctx.conn() or Client()"),
        ('os.getenv("SHOP_DATABASE").split("@")', "SHOP_DATABASE is a secret", "use ctx.conn()"),
        ('os.environ["SHOP_MODE"]', "KeyError: 'SHOP_MODE'", "set the variable SHOP_MODE"),
    ],
)
def test_e210_names_the_variable_that_a_module_misses(setup, database, read, text, remedy):
    setup.module("reads", READING.format(read=read))
    setup.environ["SHOP_DATABASE"] = database.dsn
    daemon = setup.start(database={"url": "env:SHOP_DATABASE"})

    assert daemon.ended() == 78
    (problem,) = daemon.events("supervisor.problem")
    assert (problem["code"], problem["place"]) == ("E210", "reads.py:6")
    assert text in problem["error"] and remedy in problem["next"]


def test_a_flow_with_more_warnings_than_a_message_holds_is_served(setup, database):
    source = """
from pgflowd import Flow
flow = Flow("many")

for number in range(400):
    @flow.step(slug=f"step__with_a_long_name_that_newer_releases_of_pgflow_refuse_{number}")
    def work(run): ...
"""
    setup.module("many", source)
    daemon = setup.serve()

    until(lambda: "W221" in [each["code"] for each in daemon.ask()["problems"]], 7)

    assert daemon.state_of("many") == "up"
    assert len(daemon.events("worker.warning", code="W221")) == 400


def test_a_dump_asked_for_during_discovery_disturbs_no_import(setup, database):
    gate = setup.directory / "gate"
    wait = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.01)\n"
    setup.module("slow", wait + FLOW.format(slug="alpha", attempts=3))
    daemon = setup.start()
    until(lambda: any("discovery slow" in title for title in daemon.titles()), 10)

    daemon.send(signal.SIGUSR1)
    daemon.until("supervisor.dump")
    daemon.ask()  # it has done with the signal
    gate.touch()

    daemon.until("supervisor.ready")
    assert daemon.state_of("alpha") == "up"


def test_one_flow_of_a_module_can_be_served_alone(setup, database):
    setup.module("both", TWO)
    setup.entries[:] = ["both:other"]
    daemon = setup.serve()

    assert [flow["slug"] for flow in daemon.ask()["flows"]] == ["beta"]


def test_the_import_path_of_the_config_comes_first_and_secrets_are_gone(setup, database):
    source = """
import os, sys
assert not any(name.startswith("PGFLOWD__") or name == "PGPASSWORD" for name in os.environ)
from pgflowd import Flow
flow = Flow("alpha")

@flow.step
def work(run):
    return sys.path[0]
"""
    setup.module("flow_alpha", source)
    setup.environ |= {"PGPASSWORD": "canary", "PGFLOWD__WORKER__MAX_CONCURRENCY": "3"}
    daemon = setup.serve()

    run = database.client.start_flow_sync("alpha", {}, timeout=10)

    assert run.output == {"work": str(setup.directory)}
    assert daemon.ask()["flows"][0]["max_concurrency"] == 3


def test_a_module_that_replaces_the_functions_of_json_is_served_all_the_same(setup, database):
    source = """
import json
from pgflowd import Flow

flow = Flow("patched", max_attempts=1)

def no(*args, **options):
    raise RuntimeError("another library was meant")

json.dumps = json.loads = no
json.JSONEncoder.default = lambda self, value: "anything"
json.JSONEncoder.encode = json.JSONEncoder.iterencode = json.JSONDecoder.decode = no
json.JSONEncoder.__init__ = json.JSONDecoder.__init__ = no

@flow.step
def work(run, ctx):
    ctx.log.info("here")
    return [run, ctx.flow_input()]

@flow.step
def strict(work):
    return {1, 2}
"""
    setup.module("patched", source)
    daemon = setup.serve()

    run = database.client.start_flow_sync("patched", {"ä": [1.5, None]}, timeout=10)

    assert "E403" in daemon.until("run.failed")[0]["error"]
    run = database.client.get_run_with_states(run.run_id)
    assert run.steps["work"].output == [{"ä": [1.5, None]}] * 2
    assert daemon.until("task.log")[0]["text"] == "here"
