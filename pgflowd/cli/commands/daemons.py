"""
`pgflowd daemons`: the daemons of all machines, from the database; requests to the daemon here:
`drain`, `stop`, `reload` and `wake`; and its state: `status` and `tree`.

`drain` gives running tasks the timeouts of their steps, `stop` gives them `drain_timeout`, and
`stop --now` `kill_grace`. `reload` prints the result for each flow. `wake` starts the worker of a
sleeping flow. `cli.terminal.daemon_view` prints daemons.

Without a daemon `status` prints facts from the database, and the exit code is 3. `--check`
prints nothing; its exit code is 0 if the daemon is healthy, 1 if not, 3 if it is not running.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Annotated, Any, TypedDict
from uuid import UUID

import click

from pgflowd import db
from pgflowd.cli import daemon_client
from pgflowd.cli.app import App, CommandRefused, pass_app
from pgflowd.cli.database import database, execute, perform
from pgflowd.cli.groups import Command, Group
from pgflowd.cli.params import DAEMON, REASON_OPTION, WORKER, duration_s, flow_argument
from pgflowd.cli.problems import ShownProblem, print_problems
from pgflowd.cli.terminal import daemon_view
from pgflowd.cli.terminal.texts import list_lines
from pgflowd.core.documents import Words
from pgflowd.core.documents.daemon_status import status_without_daemon
from pgflowd.core.documents.daemons import (
    ChildWord,
    Daemons,
    DaemonStatus,
    FlowStatus,
    ListedDaemon,
    NoDaemonStatus,
)
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.lookup import find_daemon, find_worker, run_id_of
from pgflowd.core.statuses import ChildState, DaemonState, DatabaseState
from pgflowd.core.supervision.reload import ReloadedFlow, ReloadResult
from pgflowd.core.text import short_id
from pgflowd.core.verbs import RESTART_WORKER
from pgflowd.errors import AccessDenied, PgflowdError, Problem, RunError, Unreachable

SHOWN = DaemonStatus | NoDaemonStatus
_HOME_AND_CLEAR = "\x1b[H\x1b[J"


class RestartedWorker(TypedDict):
    """Exit code 4 for a worker without a process: one that is unknown, has stopped, or sleeps."""

    worker_id: UUID
    result: Annotated[
        str, Words(("restarting", "repeated")), "`repeated` if it was to be replaced already"
    ]


@click.group(cls=Group)
def daemons() -> None:
    """List the daemons of all machines, show one, and restart a worker of any.

    \b
    Example: pgflowd daemons list
    """


@daemons.command("list", prints=Daemons)
@pass_app
def list_(app: App) -> None:
    """List the daemons of all machines; with -v also their processes and problems.

    Each tells how it is as often as it sweeps; in the minute after this command, every two seconds.

    \b
    Example: pgflowd daemons list
    """
    found = _read(app)
    nothing = "no daemon has told how it is; `pgflowd serve` starts one"
    app.print_found(Daemons(found), found, lambda: daemon_view.print_daemons(app, found), nothing)


@daemons.command(prints=ListedDaemon)
@click.argument("daemon", metavar="DAEMON", type=DAEMON)
@pass_app
def show(app: App, daemon: str) -> None:
    """Show what a daemon has told last, as `pgflowd status` shows it on its machine.

    DAEMON is NAME@HOST, a name or host that only one has, an id or its last digits.

    \b
    Example: pgflowd daemons show shop@app2
    """
    daemons = _read(app)
    found = find_daemon(daemons, daemon)
    app.print_result(lambda: daemon_view.print_daemon(app, found, daemons), found)


@daemons.command(prints=RestartedWorker)
@click.argument("worker_word", metavar="WORKER", type=WORKER)
@REASON_OPTION
@pass_app
def restart(app: App, worker_word: str, reason: str | None) -> None:
    """Let a worker of any machine finish its tasks, and be replaced by a new one.

    WORKER is its id, or the last digits; `pgflowd daemons list -v` shows them.

    \b
    Example: pgflowd daemons restart 7f3a9c12 --reason "it takes too much memory"
    """
    with database(app) as conn:
        worker_id = run_id_of(worker_word)  # a whole id is not looked up
        if worker_id is None:
            daemons = execute(conn, db.daemons.list_daemons())
            worker_id = find_worker(daemons, worker_word)
        result = perform(conn, db.operations.perform(RESTART_WORKER, worker_id, reason=reason))
    known = "is to be replaced already"
    does = known if result == "repeated" else "finishes its tasks, and is replaced then"
    text = f"the worker {short_id(worker_id)} {does}"
    app.print_result(text, RestartedWorker(worker_id=worker_id, result=result))


def _read(app: App) -> list[ListedDaemon]:
    """The daemons; and a hint to them that somebody looks, from a role that may give it."""
    with database(app) as conn:
        with suppress(AccessDenied):
            execute(conn, db.daemons.look_at_daemons())
        return execute(conn, db.daemons.list_daemons())


_RESULTS = {
    ReloadResult.UNCHANGED: "unchanged",
    ReloadResult.STARTED: "started",
    ReloadResult.RESTARTED: "drained and started again",
    ReloadResult.REMOVED: "drained and removed",
    ReloadResult.DISABLED: "disabled",
    ReloadResult.PARKED: "parked",
    ReloadResult.KEPT_OLD: "kept the old code and shape, because the new code cannot be served",
    ReloadResult.RESTARTING: "crashed, and is tried again",
    ReloadResult.DRAINING: "still drains",
    ReloadResult.STARTING: "still starts",
}


STOPPED = "stopped"


class EndingDaemon(TypedDict):
    pid: int
    state: Annotated[
        str, Words((DaemonState.DRAINING, DaemonState.STOPPING, STOPPED)), "with `--wait` `stopped`"
    ]


class Reloaded(TypedDict):
    """What a reload did."""

    code: Annotated[str | None, "of the error"]
    error: Annotated[str | None, "why nothing was reloaded; else null"]
    flows: Annotated[
        list[ReloadedFlow], "as they are when changed flows have been drained and started again"
    ]
    kept: Annotated[list[str], "flows that did not change"]
    changed: Annotated[list[str], "flows that changed"]
    new: Annotated[list[str], "flows that came"]
    gone: Annotated[list[str], "flows that went"]
    retried: Annotated[list[str], "parked flows that were tried again"]
    broken: Annotated[list[str], "entries that could not be loaded"]
    problems: list[ShownProblem]


@click.command(cls=Command, prints=EndingDaemon)
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@pass_app
def drain(app: App, wait: bool) -> None:
    """Let running tasks finish within their timeouts, then end the daemon.

    \b
    Example: pgflowd drain --wait
    """
    _end(app, wait, DaemonState.DRAINING, "drain")


@click.command(cls=Command, prints=EndingDaemon)
@click.option("--now", is_flag=True, help="Give running tasks only kill_grace.")
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@pass_app
def stop(app: App, now: bool, wait: bool) -> None:
    """Stop the daemon; tasks that do not finish within drain_timeout are released.

    \b
    Example: pgflowd stop --now --wait
    """
    _end(app, wait, DaemonState.STOPPING if now else DaemonState.DRAINING, "stop", now=now)


@click.command(cls=Command, prints=Reloaded)
@pass_app
def reload(app: App) -> None:
    """Read config and flows again, and replace flows that changed.

    It returns when changed flows are drained and started again, and tells how each flow ended.

    \b
    Example: pgflowd reload
    """
    answer = daemon_client.ask_to_reload(app)
    document = {key: answer.get(key, []) for key in Reloaded.__annotations__}
    document |= {"code": answer.get("code"), "error": answer.get("error")}
    app.print_result(lambda: _show(app, document), document)
    if answer.get("code") == "E411":
        app.exit(ExitCode.TRY_LATER)
    if answer.get("error"):
        app.exit(ExitCode.CONFIG)
    if any(ReloadResult(flow["result"]).is_bad for flow in answer["flows"]):
        app.exit(ExitCode.NO)


def _end(app: App, wait: bool, state: DaemonState, command: str, **arguments: bool) -> None:
    """Send the daemon a command that ends it, and report it."""
    pid = int(daemon_client.ask(app, command, **arguments)["pid"])
    if wait:
        daemon_client.wait_for_end(pid)
    end = "has ended" if wait else f"is {state}"
    document = EndingDaemon(pid=pid, state=STOPPED if wait else state)
    app.print_result(lambda: app.note(f"the daemon ({pid}) {end}"), document)


def _show(app: App, answer: dict[str, Any]) -> None:
    told = {problem["code"] for problem in answer["problems"]}
    for flow in answer["flows"]:
        text = _RESULTS[ReloadResult(flow["result"])]
        if flow["text"] and flow["code"] not in told:
            text += f": {flow['code'] or ''} {flow['text']}".replace("  ", " ")
        app.print(app.out.folded(f"{flow['flow']}: {text}"))
    if answer["code"] == "E411":
        app.note(str(answer["error"]))
    elif answer["error"]:
        app.note("nothing was changed:")
    if problems := answer["problems"]:
        keys = ("code", "text", "place", "next")
        print_problems(app, [Problem(*map(each.get, keys)) for each in problems])


_NOT_SERVED = {
    ChildState.PARKED: "is parked; `pgflowd status` says why, `pgflowd reload` tries it again",
    ChildState.DISABLED: "is disabled; set enabled = true in its section, then `pgflowd reload`",
}


class WokenFlow(TypedDict):
    """Exit code 4 for a flow that the daemon does not serve, 6 for a parked or disabled one."""

    flow: str
    state: Annotated[ChildWord, "how its worker does: `starting` once it wakes"]
    was_asleep: Annotated[bool, "false if it was awake already, which is no error"]


@click.command(cls=Command, prints=WokenFlow)
@flow_argument
@pass_app
def wake(app: App, flow: str) -> None:
    """Start the worker of a flow that sleeps.

    A flow without work sleeps after sleep_after, and wakes by itself when there is work.

    \b
    Example: pgflowd wake send_email
    """
    answer = daemon_client.ask(app, "wake", flow=flow)
    if answer.get("error"):
        raise RunError(answer["error"], code=answer["code"], next=answer["next"])
    if (why := _NOT_SERVED.get(answer["state"])) is not None:
        raise CommandRefused(f"{flow} {why}")
    text = "wakes" if answer["was_asleep"] else f"does not sleep: it is {answer['state']}"
    app.print_result(f"{flow} {text}", answer)


@click.command(cls=Command, prints={"": SHOWN, "--watch": SHOWN, "--metrics": None})
@click.option(
    "--watch", type=duration_s, metavar="[DUR]", is_flag=False, flag_value="2s",
    help="Repeat; by default every 2s.",
)  # fmt: skip
@click.option("--check", is_flag=True, help="Print nothing; the exit code is 0 if healthy.")
@click.option("--metrics", is_flag=True, help="Print OpenMetrics text.")
@pass_app
def status(app: App, watch: float | None, check: bool, metrics: bool) -> None:
    """Show the state of the daemon and its flows.

    \b
    Example: pgflowd status --watch 5s
    """
    if watch == 0:
        raise click.BadParameter("it must be longer than 0s", param_hint="--watch")
    if metrics and not check:
        from pgflowd.core.metrics.exposition import exposition
        from pgflowd.host.process_tree import ProcessUse

        numbers = daemon_client.ask(app, "metrics")
        text = exposition(numbers, ProcessUse().of(numbers["status"]))  # with all histograms
        app.print(text.removesuffix("\n"))
        return
    while watch and not check:  # until it is interrupted
        document = daemon_client.ask(app, "status")
        if app.json:
            app.print_json_line(document)
        else:
            home = _HOME_AND_CLEAR if app.out.redraws else ""
            lines = daemon_view.status_lines(document, app.out, is_full=app.verbose)
            app.print("\n".join(lines), cursor=home)
        time.sleep(watch)
    try:
        document = daemon_client.ask(app, "status")
    except daemon_client.NotRunning:
        if not check:
            _show_database(app)
        app.exit(ExitCode.NOT_RUNNING)
    if check:
        app.exit(ExitCode.OK if document.get("state") == DaemonState.HEALTHY else ExitCode.NO)
    app.print_result(
        "\n".join(daemon_view.status_lines(document, app.out, is_full=app.verbose)), document
    )


@click.command(cls=Command, prints=SHOWN)
@pass_app
def tree(app: App) -> None:
    """Show the daemon's processes, their states and restarts.

    \b
    Example: pgflowd tree
    """
    document = daemon_client.ask(app, "status")
    app.print_result("\n".join(daemon_view.tree_lines(document, app.out)), document)


def _show_database(app: App) -> None:
    """Print facts from the database."""
    database: dict[str, Any] = dict.fromkeys(("state", "server", "place", "schema"))
    queues: list[tuple[str, int, float | None]] = []
    waits: dict[str, dict[str, int]] = {}
    problems: list[dict[str, Any]] = []
    try:
        connecting = db.connection.connect(app.database_url, name="pgflowd: status")
        with connecting as conn, db.connection.translated(conn):
            db.schema.refuse_newer(conn)
            server = conn.info.parameter_status("server_version") or ""
            queues, waits = db.flows.queued_messages(conn), execute(conn, db.waits.waiting_tasks())
            place = f"{conn.info.host}:{conn.info.port}/{conn.info.dbname}"
            version = server.partition(" ")[0]
            database = {"state": DatabaseState.UP, "server": version, "place": place}
    except PgflowdError as error:
        is_down = isinstance(error, Unreachable)
        database["state"] = DatabaseState.DOWN if is_down else DatabaseState.UP
        problems = [
            {"code": each.code, "flow": None, "text": app.hide(each.text), "next": each.next}
            for each in error.problems
        ]
    document = status_without_daemon(app.settings.pgflowd.name, database, queues, waits, problems)
    if app.json:
        app.print_document(document)
        return
    app.note(f"no daemon is running at {daemon_client.socket_path(app)}; this is from the database")
    if elsewhere := daemon_client.ask_elsewhere(app):
        app.note(elsewhere)
    database = document["database"]
    app.print("\n".join(daemon_view.database_lines(database, app.out)))
    if flows := document["flows"]:
        app.print_lines(list_lines(app.out, flows, "slug queued waiting", kind=FlowStatus))
    app.print_lines(daemon_view.problem_lines(document["problems"], app.out))
