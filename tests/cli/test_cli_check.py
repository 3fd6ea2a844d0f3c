"""`pgflowd check`: everything that is wrong, at once, with place, cause and remedy."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from uuid import uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from support.background import Background
from support.covers import covers
from support.shop import MODULE, on_a_terminal

from pgflowd.testing.scratch import url_of
from pgflowd.testing.until import until

BROKEN = """
from pgflowd import Flow
flow = Flow("process_order")
@flow.step
def validate(run): ...
@flow.step
def charge(validated): ...
"""


def write(project: Path, name: str, text: str) -> None:
    """Put a module beside the others, and name it in the config."""
    (project / f"{name}.py").write_text(text)
    listed = ", ".join(f'"{path.stem}"' for path in sorted(project.glob("*.py")))
    (project / "pgflowd.toml").write_text(f"[pgflowd]\nflows = [{listed}]\n")


def codes(ended) -> list[str]:
    return [problem["code"] for problem in ended.json["problems"]]


def test_all_is_well_and_the_connections_are_counted(here, project, shop):
    ended = here("check")

    assert (ended.code, ended.out) == (0, "no problems found\n")
    assert "3 flows; up to 8 connections, 0 more in handlers; others have " in ended.err


CONNECTING = """
from pgflowd import Flow
flow = Flow("connecting")
@flow.step
def write(run, ctx):
    def execute(statement):
        return ctx.conn().execute(statement)
    execute("select 1")
"""


@pytest.fixture
def here_as_user(pgflowd, shop):
    """Run a command line as a role that may do all, but is no superuser: limits bind it."""
    name = f"bound_{os.getpid()}_{uuid4().hex[:6]}"
    shop.conn.execute(f"create role {name} login in role {shop.conn.info.user}")
    url = url_of(conninfo_to_dict(shop.conn.info.dsn, user=name))
    yield lambda *args: pgflowd(*args, "--database-url", url)
    shop.conn.execute(f"drop role {name}")


@covers("newcomer 6")
def test_too_few_connections_are_a_warning_with_the_arithmetic(here_as_user, project, shop):
    here = here_as_user
    write(project, "connecting", CONNECTING)
    name = shop.conn.info.dbname
    shop.conn.execute(f"alter database {name} connection limit 20")

    enough = here("check", "--strict")
    with (project / "pgflowd.toml").open("a") as file:
        file.write("[flows.connecting]\nmax_concurrency = 11\n")
    warned, strict = here("check"), here("check", "--strict", "--json")

    assert (enough.code, warned.code, strict.code) == (0, 0, 1)
    assert codes(strict) == ["W320"]
    daemon, handlers, others, server = strict.json["connections"].values()
    assert (daemon, handlers, server) == (9, 11, 20) and others >= 1
    text = "9 connections and its handlers up to 11 more by ctx.conn(), others have"
    assert text in warned.out
    assert f"so {20 + others} are needed, but the server allows 20" in warned.out
    assert "lower [database] max_connections" in warned.out


WAITING = """
from pgflowd import Flow
flow = Flow("waiting")
@flow.step
def wait(run, ctx):
    def approved():
        return ctx.wait_signal("approve")
    return approved()
"""
APPROVING = """
from pgflowd import Flow
flow = Flow("waiting")
flow.approval("approve")
"""
NOT_WAITING = """
import time
from pgflowd import Flow
flow = Flow("not_waiting")
@flow.step
def work(run, ctx):
    time.sleep(run["load"])
"""
OTHERS = """
insert into pgflow.workers (worker_id, queue_name, function_name)
select gen_random_uuid(), queue, name
  from unnest(array['waiting', 'not_waiting']) as queue,
       unnest(array['pgflowd:' || queue, 'by-hand', %s]) as name
"""


@covers("W318")
@pytest.mark.parametrize("source", [WAITING, APPROVING], ids=["handler", "approval"])
def test_a_worker_of_another_runtime_beside_a_flow_that_waits_is_a_warning(
    here, project, shop, source
):
    write(project, "waiting", source)
    write(project, "not_waiting", NOT_WAITING)
    with (project / "pgflowd.toml").open("a") as file:
        file.write('[flows.waiting]\nworker_name = "by-hand"\n')
    shop.conn.execute(OTHERS, ("pgflowd:waiting",))
    alone = here("check", "--strict")
    shop.conn.execute(OTHERS, ("edge-worker",))

    ended, told = here("check", "--json"), here("check")

    assert (alone.code, ended.code, codes(ended)) == (0, 0, ["W318"])
    assert "waiting: its handlers wait, but worker edge-worker of another runtime" in told.out
    assert "stop that worker: it cannot wait, and knows no checkpoint" in told.out


@covers("rule 56")
def test_a_budget_that_the_server_has_not_left_is_a_warning(here_as_user, project, shop):
    here = here_as_user
    shop.conn.execute(f"alter database {shop.conn.info.dbname} connection limit 6")
    with (project / "pgflowd.toml").open("a") as file:
        file.write("[database]\nmax_connections = 7\n")

    warned, doctor = here("check"), here("doctor")

    assert "W320" in warned.out and "opens up to 7 connections" in warned.out
    assert "W320" in doctor.out and "but the server allows 6" in doctor.out


@covers("rule 56")
@pytest.mark.parametrize("most", [1, 2])
def test_a_budget_that_no_worker_fits_into_is_refused(here, project, most):
    with (project / "pgflowd.toml").open("a") as file:
        file.write(f"[database]\nmax_connections = {most}\n")

    ended = here("check", "--offline")

    assert ended.code == 1
    text = f"E105  [database] max_connections is {most}; it must be 0, or from 3 to "
    assert text in ended.out


def test_a_flow_that_is_not_there_yet_will_be_created(here, project, database):
    ended = here("check", "--json")

    assert (ended.code, codes(ended)) == (0, [])
    assert {flow["database"] for flow in ended.json["flows"]} == {"missing"}


def test_config_flows_and_database_are_reported_at_once_in_columns(here, project, shop):
    write(project, "billing", BROKEN)
    with (project / "pgflowd.toml").open("a") as file:
        file.write("[worker]\nmax_concurency = 5\n")
    shop.conn.execute(
        "update pgflow.flows set opt_timeout = 120 where flow_slug = 'analyze_website'"
    )

    ended = here("check")

    assert ended.code == 1
    first, second, third, count = ended.out.splitlines()
    assert first == (
        "pgflowd.toml:4         E102  [worker] has no key 'max_concurency'; "
        "did you mean 'max_concurrency'?"
    )
    assert second == (
        "billing.py:6           E201  step charge: parameter 'validated' is not a step of "
        "process_order; did you mean 'validate'?"
    )
    assert third == (
        "database               W310  analyze_website: timeout is 60 in the code, "
        "120 in the database; the latter applies; "
        "`pgflowd flows deploy analyze_website --take-code` writes that of the code"
    )
    assert count == "2 errors, 1 warning"


def test_for_programs_it_is_one_document(here, project, shop):
    write(project, "billing", BROKEN)

    ended = here("check", "--json")

    assert ended.code == 1
    assert set(ended.json) == {"schema_version", "ok", "problems", "flows", "connections"}
    assert ended.json["problems"] == [
        {
            "code": "E201",
            "place": "billing.py:6",
            "text": "step charge: parameter 'validated' is not a step of process_order",
            "next": "did you mean 'validate'?",
        }
    ]
    assert {flow["flow"]: flow["database"] for flow in ended.json["flows"]} == {
        "process_order": None, "analyze_website": "same", "store_items": "same",
        "send_email": "same",
    }  # fmt: skip


@covers("E207", "E212", "E213")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import pandas_that_is_not_there", "E210", "ModuleNotFoundError"),
        ("x = (", "E210", "SyntaxError"),
        ("import sys; sys.exit(3)", "E210", "sys.exit()"),
        ("import os; os._exit(3)", "E210", "exit code 3"),
        ("import os; os.kill(os.getpid(), 11)", "E210", "SIGSEGV"),
        ("x = 1", "E212", "there is no flow in strange"),
        ("from pgflowd import Flow\nflow = Flow('SEND_EMAIL')", "E207", "differ|but for case"),
        (MODULE, "E213", "defined twice"),
    ],
)
def test_a_module_that_is_wrong_is_reported_with_its_place(here, project, text, code, said):
    write(project, "strange", text)

    ended = here("check", "--offline", "--json")

    assert ended.code == 1
    assert code in codes(ended)
    told = next(problem for problem in ended.json["problems"] if problem["code"] == code)
    assert re.search(said, told["text"])
    assert told["place"].startswith(("strange", "shop_flows"))


def test_a_module_that_hangs_is_killed_with_all_it_started(here, project):
    write(project, "hanging", "import subprocess, time\n"
          "subprocess.Popen(['sleep', '998877'])\ntime.sleep(998877)\n")  # fmt: skip
    with (project / "pgflowd.toml").open("a") as file:
        file.write('[supervisor]\nstart_timeout = "1s"\n')

    ended = here("check", "--offline", "--json")

    assert codes(ended) == ["E211"]
    until(lambda: not any("998877" in words for words in command_lines()), within_s=10)


def command_lines() -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
        except OSError:
            continue
    return [words for words in found if words.startswith("sleep")]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()",
            "1 thread",
        ),
        ("import socket\nopen_ = socket.socket()", "1 socket or pipe open"),
        ("import os\npipe = os.pipe()", "2 sockets or pipes open"),
    ],
)
def test_what_an_import_leaves_open_is_a_warning(here, project, text, left):
    write(
        project,
        "leaving",
        f'{text}\nfrom pgflowd import Flow\nf = Flow("f")\n@f.step\ndef a(run): ...\n',
    )

    ended = here("check", "--offline", "--json")
    strict = here("check", "--offline", "--strict")

    assert (ended.code, codes(ended)) == (0, ["W222"])
    assert left in ended.json["problems"][0]["text"]
    assert strict.code == 1


@covers("W311")
def test_another_shape_and_a_missing_trigger_are_reported(here, project, shop):
    (project / "shop_flows.py").write_text(MODULE.replace("summary=None", "website"))
    shop.conn.execute("drop trigger pgflowd_notify on pgmq.q_send_email")

    ended = here("check", "--json")

    assert ended.code == 1
    assert codes(ended) == ["E306", "W311"]
    assert "pgflowd flows diff analyze_website" in ended.json["problems"][0]["next"]
    assert ended.json["flows"][0]["database"] == "differs"


def test_with_verify_a_missing_flow_is_an_error(here, project, database):
    with (project / "pgflowd.toml").open("a") as file:
        file.write('definitions = "verify"\n')

    ended = here("check")

    assert ended.code == 1
    assert ended.out.count("E308") == 3
    assert "pgflowd flows deploy send_email" in ended.out


def test_a_section_of_a_flow_that_is_not_served_is_reported(here, project, shop):
    with (project / "pgflowd.toml").open("a") as file:
        file.write("[flows.send_mail]\nenabled = false\n")

    assert codes(here("check", "--json")) == ["E108"]


def test_nothing_configured_is_reported(here, elsewhere, database):
    assert codes(here("check", "--json")) == ["E111"]


def test_offline_asks_no_database(pgflowd, project):
    nowhere = ("--database-url", "postgresql://127.0.0.1:1/x")

    assert pgflowd("check", "--offline", *nowhere).code == 0
    asked = pgflowd("check", *nowhere)
    assert asked.code == 1
    assert "database               E301" in asked.out


def test_a_database_without_a_schema_is_reported(pgflowd, project, empty_database):
    ended = pgflowd("check", "--database-url", empty_database.dsn, "--json")

    assert codes(ended) == ["E302"]
    assert ended.json["problems"][0]["place"] == "database"


def test_a_config_that_cannot_be_read_is_reported_without_asking_a_wrong_database(
    pgflowd, elsewhere
):
    (elsewhere / "pgflowd.toml").write_text("[pgflowd\n")

    assert codes(pgflowd("check", "--json")) == ["E109"]


@covers("use 9")
def test_of_a_config_that_is_not_there_nothing_else_is_said(pgflowd, elsewhere):
    ended = pgflowd("-c", "/nonexistent.toml", "check")
    as_json = pgflowd("-c", "/nonexistent.toml", "check", "--json")

    assert (ended.code, as_json.code) == (78, 78)
    assert [each["code"] for each in as_json.problems] == ["E101"]
    assert ended.err.count("E101") == 1 and "flows" not in ended.out + ended.err
    assert len(ended.err.splitlines()) == 1


@covers("use 6")
def test_warnings_that_the_config_ignores_are_left_out_and_errors_are_not(pgflowd, project):
    text = 'import os\npipe = os.pipe()\nfrom pgflowd import Flow\nf = Flow("f")\n'
    write(project, "leaving", f"{text}@f.step\ndef a(run): ...\n")
    config = project / "pgflowd.toml"
    before = config.read_text()
    strict = ("check", "--offline", "--strict")
    assert codes(pgflowd(*strict, "--json")) == ["W222"]

    config.write_text(f'{before}[check]\nignore = ["W222"]\n')
    ended = pgflowd(*strict)
    assert (ended.code, ended.out) == (0, "no problems found\n")
    assert "1 warning left out, as ignore in [check] says" in ended.err

    config.write_text(f'{before}[check]\nignore = ["E210"]\n')
    refused = pgflowd("check", "--offline", "--json")
    assert refused.code == 1 and "the code of a warning" in refused.json["problems"][0]["text"]


@covers("row 103")
def test_a_password_is_nowhere(pgflowd, project):
    url = "postgresql://u:canary7@127.0.0.1:1/x"

    ended = pgflowd("check", "--database-url", url)
    as_json = pgflowd("check", "--database-url", url, "--json")

    assert "canary7" not in ended.out + ended.err + as_json.out + as_json.err


@pytest.mark.parametrize("columns", [40, 80])
def test_problems_fit_the_terminal(project, columns):
    write(project, "billing", BROKEN)

    shown = on_a_terminal("check", "--offline", columns=columns, NO_COLOR="1")

    assert max(len(line) for line in shown.splitlines()) <= columns, shown
    assert "E201" in shown


def test_an_interrupted_check_ends_at_once_and_leaves_nothing_behind(project):
    (project / "hanging.py").write_text(
        "import pathlib, subprocess, time\n"
        "subprocess.Popen(['sleep', '887766'])\npathlib.Path('there').touch()\ntime.sleep(99)\n"
    )
    (project / "pgflowd.toml").write_text('[pgflowd]\nflows = ["hanging"]\n')
    with Background("check", "--offline") as checking:
        until(lambda: (project / "there").exists(), within_s=20)
        checking.process.send_signal(signal.SIGINT)

        assert checking.ended() == 130
    until(lambda: not any("887766" in words for words in command_lines()), within_s=10)


def test_a_killed_check_takes_its_imports_with_it(project):
    (project / "hanging.py").write_text(
        "import os, pathlib, time\n"
        "pathlib.Path('pid').write_text(str(os.getpid()))\ntime.sleep(99)\n"
    )
    (project / "pgflowd.toml").write_text('[pgflowd]\nflows = ["hanging"]\n')
    with Background("check", "--offline") as checking:
        pid = until(lambda: (project / "pid").exists() and (project / "pid").read_text(), 20)
        checking.process.kill()
        checking.ended()

    until(lambda: not is_alive(pid), within_s=10)


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("entry", "text", "remedy"),
    [
        ("nosuch", "", "No module named 'nosuch'; see flows and python_path in [pgflowd]"),
        (
            "mine",
            "import pandaz",
            "No module named 'pandaz'; install it in the Python environment of pgflowd",
        ),
        ("mine", "x = 1", 'there is no flow in mine; write one: flow = Flow("…"), or @job'),
        ("mine:flwo", "from pgflowd import Flow\nflow = Flow('a')", "did you mean 'flow'?"),
    ],
)
def test_what_cannot_be_imported_is_reported_with_what_to_do(
    pgflowd, elsewhere, entry, text, remedy
):
    (elsewhere / "pgflowd.toml").write_text(f'[pgflowd]\nflows = ["{entry}"]\n')
    (elsewhere / "mine.py").write_text(text)

    ended = pgflowd("check", "--offline")

    assert ended.code == 1
    assert remedy in ended.out


def test_without_any_config_a_project_is_suggested(pgflowd):
    assert "run `pgflowd new NAME` to write a project" in pgflowd("check", "--offline").out
