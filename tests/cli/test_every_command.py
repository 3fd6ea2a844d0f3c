"""Every command there is: its flags, its examples, and its good, wrong and `--json` forms."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import click
import pytest
from support import documents

from pgflowd.cli.main import cli, run
from pgflowd.core.exit_codes import ExitCode

FLAGS = {  # what the surface promises, and no more
    "serve": "--flow", "dev": "--port --no-reload --ephemeral --reset", "demo": "--once --keep",
    "new": "--template", "check": "--offline --strict", "doctor": "--user",
    "status": "--watch --check --metrics", "drain": "--wait", "stop": "--now --wait", "tree": "",
    "top": "", "reload": "", "wake": "", "docs": "--schema", "explain": "", "version": "",
    "completion": "",
    "runs start": "--follow --wait --timeout --run-id --key --at --delay --expires"
                  " --after --after-key --after-mode --label --singleton --on-conflict",
    "runs list": "--flow --status --since --until --text --label --key --input --after --limit",
    "runs show": "--input --output --attempts --checkpoints --tree",
    "runs follow": "--timeout", "runs wait": "--timeout", "runs log": "--follow --before --limit",
    "runs cancel": "--flow --status --since --label --yes --reason --undo",
    "runs retry": "--flow --status --since --label --yes --even-if-cancelled --reason --follow",
    "runs signal": "--dedup",
    "runs reschedule": "--at --delay --expires --after --singleton --reason",
    "runs pause": "--flow --status --since --label --yes --reason",
    "runs resume": "--flow --status --since --label --yes --reason",
    "flows pause": "--reason", "flows resume": "--reason",
    "runs prune": "--older-than --flow --label --keep-failed --dry-run --yes",
    "runs delete": "--flow --status --since --label --yes",
    "runs undo": "--flow --status --since --label --yes --reason --again --follow",
    "runs output": "--step --task --attempt --follow", "runs tasks": "--status --after --limit",
    "runs approve": "--note",
    "runs reject": "--note", "signals list": "--run --open --limit",
    "tasks list": "--status --flow --run --needs --limit", "tasks wake": "--reason",
    "tasks claim": "--caps --as --lease", "tasks complete": "--as --token",
    "tasks extend": "--lease --as --token",
    "tasks fail": "--reason --final --as --token", "tasks release": "--delay --needs --as --token",
    "flows list": "", "flows show": "", "flows graph": "--run --format", "flows diff": "",
    "flows deploy": "--take-code --yes --code --sql", "flows set": "",
    "flows rollback": "", "flows prune-versions": "", "flows delete": "--force --reason --yes",
    "flows schema": "--step", "flows limits": "--limit", "flows stats": "--since",
    "schedules list": "--flow", "schedules next": "--count", "schedules fire": "",
    "schedules pause": "", "schedules resume": "", "schedules remove": "",
    "schedules add": "--input --timezone --overlap --catchup",
    "daemons list": "", "daemons show": "", "daemons restart": "--reason",
    "stalled list": "", "stalled requeue": "--all --reason", "stalled fail": "--all --reason",
    "log": "--actions --run --since --actor --follow --limit",
    "dead list": "--flow --since --limit",
    "db status": "", "db migrate": "--to --adopt --dry-run", "db sql": "--from",
    "db settings": "", "db set": "",
    "web": "--listen --read-only --open", "web passwd": "--act", "web token": "--act",
    "config show": "--origin", "config schema": "--pyproject", "config env": "",
    "monitoring scrape": "", "monitoring alerts": "", "monitoring grafana": "",
    "systemd install": "--user --dry-run --yes", "systemd show": "--user",
}  # fmt: skip
EVERYWHERE = {
    "--config", "--database-url", "--instance", "--json", "--color", "--quiet", "--verbose",
    "--version",
}  # fmt: skip

WITH_A_DAEMON = {  # good forms need one, or a terminal, and stand elsewhere
    "serve": "process/test_supervisor.py",
    "status": "process/test_daemon_commands.py",
    "tree": "process/test_daemon_commands.py",
    "drain": "process/test_stop_and_reload.py",
    "stop": "process/test_stop_and_reload.py",
    "reload": "process/test_stop_and_reload.py",
    "wake": "process/test_sleep.py",
    "dev": "cli/test_dev.py",
    "demo": "cli/test_demo.py",
    "web": "web/test_web_command.py",
    "top": "cli/test_top.py",
}


def leaves() -> Iterator[tuple[str, click.Command]]:
    """Every command that is not a group, with the words that call it."""
    waiting: list[tuple[str, click.Command]] = [("", cli)]
    while waiting:
        words, command = waiting.pop()
        if isinstance(command, click.Group):
            ctx = click.Context(command)
            for name in command.list_commands(ctx):
                inner = command.get_command(ctx, name)
                assert inner is not None
                waiting.append((f"{words} {name}".strip(), inner))
        is_leaf = not isinstance(command, click.Group) or command.invoke_without_command
        if is_leaf:
            yield words, command


LEAVES = dict(leaves())


@dataclass(frozen=True)
class Forms:
    """A command line that works, its output, its keys as JSON; one that is wrong, and its error."""

    good: str
    shows: str
    keys: str
    wrong: str
    why: str
    code: int = 2
    exits: int = 0  # of the good form
    on: str = "completed"  # the newest run; "" needs no database


FORMS = {
    "new": Forms("new mill", "pyproject.toml", "directory template files",
                 "new 'my mill'", "is not a valid name", on=""),
    "check": Forms("check --offline", "no problems", "ok problems flows connections",
                   "check --strickt", "did you mean '--strict'?", on=""),
    "doctor": Forms("doctor", "PostgreSQL", "ok findings", "doctor me", "'schema'"),
    "docs": Forms("docs waits", "wait for a time", "topic title part text",
                  "docs wiats", "the nearest are waits", 4, on=""),
    "explain": Forms("explain E210", "cannot be imported", "code title group text",
                     "explain E299", "the nearest are E209", 4, on=""),
    "version": Forms("version", "pgflowd", "pgflowd", "version x", "unexpected", on=""),
    "completion": Forms("completion bash", "complete", "shell script",
                        "completion bsh", "'bsh'", on=""),
    "runs start": Forms("runs start send_email 1", "-", "run_id flow status",
                        "runs start send_mail 1", "did you mean 'send_email'?", 4),
    "runs list": Forms("runs list", "analyze_website", "runs",
                       "runs list --status faild", "'faild'"),
    "runs show": Forms("runs show @last", "save_to_db", "run_id flow status steps",
                       "runs show @lats", "@last"),
    "runs follow": Forms("runs follow @last", "completed", "event run_id flow step",
                         "runs follow zzz", "@last"),
    "runs wait": Forms("runs wait @last", "save_to_db", "runs",
                       "runs wait @last --timeout 5", "it has no unit"),
    "runs log": Forms("runs log @last", "website", "events", "runs log", "missing argument"),
    "log": Forms("log --actions", "signal run", "actions", "log --since 5", "it has no unit",
                 on="waiting"),
    "dead list": Forms("dead list", "website#0", "tasks", "dead lst", "'list'", on="failed"),
    "runs undo": Forms("runs undo @last", "is being undone", "runs",
                       "runs undo", "name runs, or choose", on="undoable"),
    "runs output": Forms("runs output @last", "", "run_id", "runs output", "missing argument"),
    "runs tasks": Forms("runs tasks @last website", "completed", "run_id step tasks after",
                        "runs tasks @last web_site", "did you mean 'website'?", 4),
    "runs cancel": Forms("runs cancel @last", "cancelled", "runs",
                         "runs cancel", "name runs, or choose", on="open"),
    "runs retry": Forms("runs retry @last", "retried", "runs",
                        "runs retry nothing", "is not a run", on="failed"),
    "runs reschedule": Forms("runs reschedule @last --expires 2d", "rescheduled", "runs",
                             "runs reschedule @last", "--at, --delay, --expires", on="open"),
    "runs prune": Forms("runs prune --older-than 1h --yes", "0 runs deleted", "deleted dry_run",
                        "runs prune --older-than 30", "it has no unit"),
    "runs delete": Forms("runs delete @last --yes", "deleted", "runs",
                         "runs delete @last", "needs --yes", 6),
    "runs pause": Forms("runs pause @last --reason heat", "paused", "runs",
                        "runs pause", "name runs, or choose", on="open"),
    "runs resume": Forms("runs resume @last", "resumed", "runs",
                         "runs resume", "name runs, or choose", on="open"),
    "runs signal": Forms("runs signal @last paid 7", "kept until", "signal_id run_id name payload",
                         "runs signal @last", "missing argument", on="open"),
    "runs approve": Forms("runs approve @last website", "kept until", "signal_id run_id name",
                          "runs approve @last web_site", "did you mean 'website'?", 4, on="open"),
    "runs reject": Forms("runs reject @last website --note no", "kept until", "signal_id payload",
                         "runs reject @last", "missing argument", on="open"),
    "signals list": Forms("signals list", "paid", "signals",
                          "signals list --opne", "'--open'", on="waiting"),
    "tasks list": Forms("tasks list", "website#0", "tasks",
                        "tasks list --status waitin", "'waitin'", on="open"),
    "tasks wake": Forms("tasks wake @last/website#0", "queued", "run_id step task result",
                        "tasks wake @last/website", "RUN/STEP#INDEX", on="waiting"),
    "tasks claim": Forms("tasks claim analyze_website --as jane", "website#0  token", "task",
                         "tasks claim analyse_website", "did you mean 'analyze_website'?", 4,
                         on="open"),
    "tasks complete": Forms("tasks complete @last/website#0 1", "completed", "run_id step result",
                            "tasks complete @last/website#0", "missing argument", on="open"),
    "tasks extend": Forms("tasks extend @last/website#0 --lease 2d --as jane", "until",
                          "run_id step", "tasks extend @last/website --lease 2d",
                          "RUN/STEP#INDEX", on="held"),
    "tasks fail": Forms("tasks fail @last/website#0 --reason no", "queued", "run_id task result",
                        "tasks fail @last/website", "RUN/STEP#INDEX", on="open"),
    "tasks release": Forms("tasks release @last/website#0", "queued", "run_id step task result",
                           "tasks release @last/website#0 --delay 5", "it has no unit", on="open"),
    "flows list": Forms("flows list", "send_email", "flows", "flows lst", "'list'"),
    "flows show": Forms("flows show send_email", "perform", "flow steps shape",
                        "flows show send_mail", "did you mean 'send_email'?", 4),
    "flows graph": Forms("flows graph analyze_website --run @last", "save_to_db", "nodes edges",
                         "flows graph send_email --format svg", "'svg'"),
    "flows pause": Forms("flows pause send_email", "paused", "flow changed",
                         "flows pause send_mail", "did you mean 'send_email'?", 4),
    "flows resume": Forms("flows resume send_email", "is not paused", "flow changed",
                          "flows resume send_mail", "did you mean 'send_email'?", 4),
    "flows diff": Forms("flows diff send_email", "same", "flow exists same",
                        "flows diff send_mail", "E415", 4),
    "flows stats": Forms("flows stats send_email", "0 ready", "flows",
                         "flows stats send_email --since 5", "it has no unit"),
    "flows schema": Forms("flows schema send_email", '"input": null', "flow input steps",
                          "flows schema send_email --step mail", "has no step 'mail'", 4),
    "flows limits": Forms("flows limits send_email", "no step of send_email has", "limits",
                          "flows limits send_mail", "did you mean 'send_email'?", 4),
    "flows set": Forms("flows set send_email/perform timeout=30", "timeout unset → 30",
                       "flow step changes",
                       "flows set send_email timeuot=30", "did you mean 'timeout'?"),
    "flows deploy": Forms("flows deploy", "unchanged", "flows",
                          "flows deploy send_mail", "E415", 4),
    "flows rollback": Forms("flows rollback send_email", "starts go to send_email", "flow current",
                            "flows rollback send_mail", "did you mean", 4, on="changed"),
    "flows prune-versions": Forms("flows prune-versions send_email", "no old version without",
                                  "flow deleted", "flows prune-versions send_mail", "E415", 4),
    "flows delete": Forms("flows delete store_items --yes", "deleted", "flow deleted",
                          "flows delete store_items", "--yes", 6),
    "schedules list": Forms("schedules list", "at 03:00 every day (UTC)", "schedules",
                            "schedules list --flow send_mail", "did you mean 'send_email'?", 4,
                            on="scheduled"),
    "schedules next": Forms("schedules next nightly --count 2", "03:00:00 +0000", "name ticks",
                            "schedules next nightli", "did you mean 'nightly'?", 4, on="scheduled"),
    "schedules fire": Forms("schedules fire nightly", "started", "name run_id status",
                            "schedules fire nightli", "did you mean 'nightly'?", 4, on="scheduled"),
    "schedules pause": Forms("schedules pause nightly", "paused", "name changed",
                             "schedules pause nightli", "did you mean 'nightly'?", 4,
                             on="scheduled"),
    "schedules resume": Forms("schedules resume nightly", "is not paused", "name changed",
                              "schedules resume nightli", "did you mean 'nightly'?", 4,
                              on="scheduled"),
    "schedules add": Forms("schedules add noon send_email '0 12 * * *'", "at 12:00 every day",
                           "name flow changed next_at",
                           "schedules add noon send_mail @daily", "did you mean 'send_email'?", 4,
                           on="scheduled"),
    "schedules remove": Forms("schedules remove nightly", "is removed", "name removed origin",
                              "schedules remove nightli", "did you mean 'nightly'?", 4,
                              on="scheduled"),
    "daemons list": Forms("daemons list", "app1", "daemons",
                          "daemons lst", "'list'", on="told"),
    "daemons show": Forms("daemons show shop@app1", "supervisor 812", "id name host status",
                          "daemons show shop@app2", "did you mean 'shop@app1'?", 4, on="told"),
    "daemons restart": Forms("daemons restart 00000001", "is replaced", "worker_id result",
                             "daemons restart mill", "is not a worker", on="told"),
    "stalled list": Forms("stalled list", "website#0", "tasks",
                          "stalled lst", "'list'", on="stalled"),
    "stalled requeue": Forms("stalled requeue --all", "requeued", "requeued left",
                             "stalled requeue", "--all", on="stalled"),
    "stalled fail": Forms("stalled fail --all", "failed", "failed left",
                          "stalled fail @last/website", "RUN/STEP#INDEX", on="stalled"),
    "db status": Forms("db status", "PostgreSQL", "server version needed", "db stats", "'status'"),
    "db migrate": Forms("db migrate --dry-run", "nothing was changed", "before after dry_run",
                        "db migrate --to 99", "out of reach"),
    "db sql": Forms("db sql", "create schema", "sql", "db sql rolls", "roles", on=""),
    "db settings": Forms("db settings", "retention_completed  null", "settings",
                         "db setings", "'settings'"),
    "db set": Forms("db set retention_completed 30d", "is 30d now; it was null", "name value old",
                    "db set retention_completed 30m", "a duration from 1h"),
    "web passwd": Forms("web passwd jane", "jane is added, and may", "name may_act file replaced",
                        "web passwd 'jane doe'", "is not a name", on="logins"),
    "web token": Forms("web token ci --act", "pgflowd_", "name may_act file replaced token",
                       "web token", "missing argument", on="logins"),
    "config show": Forms("config show", "[worker]", "file settings",
                         "config show --orgin", "'--origin'", on=""),
    "config schema": Forms("config schema", "properties", "properties",
                           "config schema x", "unexpected", on=""),
    "config env": Forms("config env", "PGFLOWD__WORKER", "variables", "config evn", "'env'", on=""),
    "monitoring scrape": Forms("monitoring scrape", "scrape_configs:", "file text",
                               "monitoring scrap", "did you mean 'scrape'?", on=""),
    "monitoring alerts": Forms("monitoring alerts", "PgflowdDown", "file text",
                               "monitoring alerts x", "unexpected", on=""),
    "monitoring grafana": Forms("monitoring grafana", "pgflowd_ready", "file text",
                                "monitoring grafana x", "unexpected", on=""),
    "systemd install": Forms("systemd install --dry-run", "nothing was written", "dry_run files",
                             "systemd install --dry", "'--dry-run'", on=""),
    "systemd show": Forms("systemd show", "[Service]", "files", "systemd shw", "'show'", on=""),
}  # fmt: skip


@pytest.fixture
def project_on(request, project, monkeypatch) -> Callable[[str], None]:
    """A project with its database, in which the newest run is as a test wants it."""

    def made(on: str) -> None:
        if not on:
            return
        if on == "logins":
            for key in ("users", "tokens"):
                monkeypatch.setenv(f"PGFLOWD__WEB__{key.upper()}", str(project / key))
            monkeypatch.setattr(sys, "stdin", io.StringIO("correct horse\n"))
            return
        shop = request.getfixturevalue("shop")
        monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)
        if on in ("completed", "undoable"):
            shop.run_through()
        if on == "undoable":
            shop.do(
                "insert into pgflowd.step_options (flow_slug, step_slug, undo)"
                " values ('analyze_website', 'website', 'completed')"
            )
        if on in ("completed", "undoable"):
            return
        if on == "changed":
            shape = '{"steps": [{"slug": "other", "stepType": "single"}]}'
            shop.do("select pgflowd.deploy_version('send_email', %s)", shape)
            return
        if on == "told":
            told = shop.tell_daemon("app1", worker_id=UUID(int=1))
            shop.worker("send_email", UUID(told["flows"][0]["worker_id"]))
            return
        if on == "scheduled":
            add = "select pgflowd.set_schedule('nightly', 'send_email', '0 3 * * *')"
            shop.conn.execute(add)
            return
        shop.start()
        if on == "failed":
            key = shop.claim_all()["website#0"]
            shop.conn.execute("select pgflowd.fail(%s, %s, %s, %s, 'no', retry => false)", key)
        if on == "held":
            shop.do("select pgflowd.task_claim('analyze_website', '{}', '1 h', 'jane')")
        if on == "waiting":
            shop.suspend(shop.claim_all()["website#0"], kind="signal", name="website")
            shop.do("select pgflowd.signal(run_id, 'paid') from pgflow.runs")
        if on == "stalled":
            shop.claim_all()
            shop.stall()

    return made


def test_the_commands_are_those_that_were_promised():
    assert set(FLAGS) == set(LEAVES)


@pytest.mark.parametrize("words", LEAVES)
def test_a_command_has_the_flags_that_were_promised(words):
    options = [param for param in LEAVES[words].params if isinstance(param, click.Option)]
    long = {max(option.opts, key=len) for option in options if not option.hidden}

    assert long == EVERYWHERE | set(FLAGS[words].split())


def test_every_command_has_its_good_wrong_and_json_forms_in_a_test():
    assert set(FORMS) | set(WITH_A_DAEMON) == set(LEAVES)
    for words, where in WITH_A_DAEMON.items():
        assert words in (Path(__file__).parents[1] / where).read_text("utf-8"), words


def test_what_each_command_prints_as_json_has_a_schema():
    without = {"serve", "dev", "top", "config schema"}  # these log, draw, or print a schema

    assert {words for words in LEAVES if documents.printed_by(words.split()) is None} == without


@pytest.mark.parametrize("words", FORMS)
def test_the_good_form(words, project_on, pgflowd):
    forms = FORMS[words]
    project_on(forms.on)

    ended = pgflowd(*shlex.split(forms.good))

    assert ended.code == forms.exits, ended
    assert forms.shows in ended.out


@pytest.mark.parametrize("words", FORMS)
def test_the_form_for_programs(words, project_on, pgflowd):
    forms = FORMS[words]
    project_on(forms.on)

    ended = pgflowd(*shlex.split(forms.good), "--json")

    lines = ended.out.splitlines() if words == "runs follow" else [ended.out]
    for document in map(json.loads, lines):
        assert set(forms.keys.split()) <= set(document)
        if words != "config schema":  # it is in the words of JSON Schema
            assert document["schema_version"] == 1
    assert ended.code == forms.exits
    assert ended.err == ""


@pytest.mark.parametrize("words", FORMS)
def test_the_wrong_form(words, project_on, pgflowd):
    forms = FORMS[words]
    project_on(forms.on)

    for_people = pgflowd(*shlex.split(forms.wrong))
    for_programs = pgflowd(*shlex.split(forms.wrong), "--json")

    assert (for_people.code, for_people.out) == (forms.code, "")
    assert forms.why in for_people.err
    assert for_programs.code == forms.code
    assert all(set(one) == {"code", "place", "text", "next"} for one in for_programs.problems)


@pytest.mark.parametrize("words", WITH_A_DAEMON)
def test_the_wrong_form_of_those_that_need_a_daemon(words, project, pgflowd):
    flag = (FLAGS[words].split() or ["--verbose"])[0]
    typo = f"{flag[:-2]}{flag[-1]}{flag[-2]}"

    for_people, extra = pgflowd(words, typo), pgflowd(words, "extra", "more", "--json")

    assert (for_people.code, for_people.out) == (2, "")
    assert f"there is no option '{typo}'; did you mean '{flag}'?" in for_people.err
    assert (extra.code, extra.out) == (2, "")
    assert "extra" in extra.problems[0]["text"]


@pytest.mark.parametrize("line", ["tree", "drain", "stop --now", "reload", "status --metrics"])
def test_without_a_daemon_the_error_names_the_command_that_starts_one(
    line, project, pgflowd, monkeypatch
):
    monkeypatch.setenv("PGFLOWD__SUPERVISOR__CONTROL", str(project / "nobody.sock"))

    for_people, for_programs = pgflowd(*line.split()), pgflowd(*line.split(), "--json")

    assert (for_people.code, for_people.out) == (3, "")
    assert for_people.err == (
        f"pgflowd: no daemon is running at {project / 'nobody.sock'}; `pgflowd serve` starts one\n"
    )
    assert (for_programs.code, for_programs.out) == (3, "")
    assert "no daemon is running" in for_programs.problems[0]["text"]


LISTINGS = [
    "runs list", "runs show @last", "flows list", "flows show analyze_website",
    "flows graph analyze_website --run @last", "doctor", "config env", "runs follow @last",
]  # fmt: skip


@pytest.mark.parametrize("line", LISTINGS)
def test_colour_may_be_forced_into_a_pipe_and_changes_nothing_else(line, project_on, pgflowd):
    project_on("completed")

    plain, painted = (pgflowd(*shlex.split(line), "--color", each) for each in ("never", "always"))

    assert "\x1b[" in painted.out
    assert _still(click.unstyle(painted.out)) == _still(plain.out)


def _still(text: str) -> str:
    """The text without what time changes, and without the sessions of other tests."""
    zeros = re.sub(r"[+-]?\d+(\.\d+)?", "0", text)
    return re.sub(r"(, )?0 (of user \w+|[^,(\n]+ \(user \w+\)|others)", "", zeros)


def test_verbose_shows_whole_ids_and_quiet_no_notes(project_on, pgflowd):
    project_on("completed")
    whole = pgflowd("runs", "list", "-v").out.splitlines()[1].split()[0]

    assert len(whole) == 36
    assert pgflowd("runs", "list").out.splitlines()[1].split()[0] == whole[-8:]
    assert pgflowd("runs", "list", "--flow", "send_email").err == "there are no such runs\n"
    assert pgflowd("runs", "list", "--flow", "send_email", "-q").err == ""


@pytest.mark.parametrize("words", LEAVES)
def test_examples_of_the_help_are_understood(words, elsewhere, monkeypatch):
    understood = []
    monkeypatch.setattr(click.Command, "invoke", lambda self, ctx: understood.append(self))
    (elsewhere / "orders.json").write_text("{}")

    examples = list(_examples(LEAVES[words].help or ""))

    for example in examples:
        assert run(example) == 0, example
    assert LEAVES[words].name in {command.name for command in understood}, examples


def _examples(help: str) -> Iterator[list[str]]:
    """The command lines of pgflowd in a help text, without the shell around them."""
    for line in help.partition("Example:")[2].splitlines():
        words = shlex.split(re.split(r" (?:\||>|&&) ", line.replace("Example:", ""))[0])
        if "pgflowd" in words:
            yield words[words.index("pgflowd") + 1 :]


@pytest.mark.parametrize("words", [words for words in FORMS if words != "runs cancel"])
def test_a_reader_that_went_away_is_141_for_every_command(
    words, project_on, monkeypatch, elsewhere
):
    project_on(FORMS[words].on)
    reader, writer = os.pipe()
    os.close(reader)

    with os.fdopen(writer, "w") as nobody, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", nobody)
        code = run(shlex.split(FORMS[words].good))

    assert code == ExitCode.BROKEN_PIPE
