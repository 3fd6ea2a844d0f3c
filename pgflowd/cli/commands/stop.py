"""
`pgflowd drain`, `pgflowd stop` and `pgflowd reload`: requests to the running daemon.

`drain` gives running tasks the timeouts of their steps, `stop` gives them `drain_timeout`, and
`stop --now` `kill_grace`. `reload` prints the result for each flow.
"""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import ask, ask_to_reload, wait_for_end
from pgflowd.cli.groups import Command
from pgflowd.cli.problems import ShownProblem, print_problems
from pgflowd.core.documents import Words
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.statuses import DaemonState
from pgflowd.core.supervision.reload import ReloadedFlow, ReloadResult
from pgflowd.errors import Problem

_LISTS = ("flows", "kept", "changed", "new", "gone", "retried", "broken", "problems")
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
DaemonEnd = Annotated[
    str, Words((DaemonState.DRAINING, DaemonState.STOPPING, STOPPED)), "with `--wait` `stopped`"
]


class EndingDaemon(TypedDict):
    pid: int
    state: DaemonEnd


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
    _report_end(app, ask(app, "drain"), wait, "draining")


@click.command(cls=Command, prints=EndingDaemon)
@click.option("--now", is_flag=True, help="Give running tasks only kill_grace.")
@click.option("--wait", is_flag=True, help="Return when the daemon has ended.")
@pass_app
def stop(app: App, now: bool, wait: bool) -> None:
    """Stop the daemon; tasks that do not finish within drain_timeout are released.

    \b
    Example: pgflowd stop --now --wait
    """
    _report_end(app, ask(app, "stop", now=now), wait, "stopping" if now else "draining")


@click.command(cls=Command, prints=Reloaded)
@pass_app
def reload(app: App) -> None:
    """Read config and flows again, and replace flows that changed.

    It returns when changed flows are drained and started again, and tells how each flow ended.

    \b
    Example: pgflowd reload
    """
    answer = ask_to_reload(app)
    if app.json:
        lists = {key: answer.get(key, []) for key in _LISTS}
        outcome = {"code": answer.get("code"), "error": answer.get("error")}
        app.print_document({**outcome, **lists})
    else:
        _show(app, answer)
    if answer.get("code") == "E411":
        app.exit(ExitCode.TRY_LATER)
    if answer.get("error"):
        app.exit(ExitCode.CONFIG)
    if any(ReloadResult(flow["result"]).is_bad for flow in answer["flows"]):
        app.exit(ExitCode.NO)


def _report_end(app: App, answer: dict[str, Any], wait: bool, state: DaemonEnd) -> None:
    pid = int(answer["pid"])
    if wait:
        wait_for_end(pid)
        state = STOPPED
    if app.json:
        app.print_document(EndingDaemon(pid=pid, state=state))
    else:
        app.note(f"the daemon ({pid}) is {state}" if not wait else f"the daemon ({pid}) has ended")


def _show(app: App, answer: dict[str, Any]) -> None:
    told = {problem["code"] for problem in answer.get("problems", [])}
    for flow in answer.get("flows", []):
        text = _RESULTS[ReloadResult(flow["result"])]
        if flow["text"] and flow["code"] not in told:
            text += f": {flow['code'] or ''} {flow['text']}".replace("  ", " ")
        app.print(app.out.folded(f"{flow['flow']}: {text}"))
    if answer.get("code") == "E411":
        app.note(str(answer["error"]))
    elif answer.get("error"):
        app.note("nothing was changed:")
    problems = [
        Problem(each["code"], each["text"], each.get("place"), each.get("next"))
        for each in answer.get("problems", [])
    ]
    if problems:
        print_problems(app, problems)
