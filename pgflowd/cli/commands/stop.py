"""
Stop: `drain`, `stop` and `reload`: orders to the running daemon.

`drain` lets running tasks take the time their steps allow; `stop` gives them `drain_timeout`,
`stop --now` `kill_grace`. `reload` answers with what became of each flow.
"""

from __future__ import annotations

from typing import Any

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import ask, wait_for_end
from pgflowd.cli.exits import ExitCode
from pgflowd.cli.groups import Command
from pgflowd.cli.problems import complain
from pgflowd.errors import Problem

RELOAD_TIMEOUT_S = 300.0
SCHEMA_VERSION = 1
_WORDS = {
    "kept": "kept",
    "changed": "drained and started anew",
    "new": "added",
    "gone": "drained and removed",
    "retried": "tried again",
    "broken": "broken",
}


@click.command(cls=Command)
@click.option("--wait", is_flag=True, help="Return when the daemon is gone.")
@pass_app
def drain(app: App, wait: bool) -> None:
    """Let running tasks finish, however long they may take, then end the daemon.

    \b
    Example: pgflowd drain --wait
    """
    _end(app, ask(app, "drain"), wait, "draining")


@click.command(cls=Command)
@click.option("--now", is_flag=True, help="Give running tasks kill_grace only.")
@click.option("--wait", is_flag=True, help="Return when the daemon is gone.")
@pass_app
def stop(app: App, now: bool, wait: bool) -> None:
    """End the daemon; tasks that do not finish within drain_timeout are given back.

    \b
    Example: pgflowd stop --now --wait
    """
    _end(app, ask(app, "stop", now=now), wait, "stopping" if now else "draining")


@click.command(cls=Command)
@pass_app
def reload(app: App) -> None:
    """Read config and flows again; replace what has changed.

    \b
    Example: pgflowd reload
    """
    said = ask(app, "reload", RELOAD_TIMEOUT_S)
    if app.json:
        lists = {key: said.get(key, []) for key in (*_WORDS, "problems")}
        told = {"code": said.get("code"), "error": said.get("error")}
        app.print_json({"schema_version": SCHEMA_VERSION, **told, **lists})
    else:
        _show(app, said)
    if said.get("code") == "E411":
        app.exit(ExitCode.TRY_LATER)
    if said.get("error"):
        app.exit(ExitCode.CONFIG)
    if said.get("broken"):
        app.exit(ExitCode.NO)


def _end(app: App, said: dict[str, Any], wait: bool, state: str) -> None:
    pid = int(said["pid"])
    if wait:
        wait_for_end(pid)
        state = "stopped"
    if app.json:
        app.print_json({"schema_version": SCHEMA_VERSION, "pid": pid, "state": state})
    else:
        app.note(f"the daemon ({pid}) is {state}" if not wait else f"the daemon ({pid}) has ended")


def _show(app: App, said: dict[str, Any]) -> None:
    for key, words in _WORDS.items():
        for name in said.get(key, []):
            app.print(f"{name}: {words}")
    if said.get("code") == "E411":
        app.note(str(said["error"]))
    elif said.get("error"):
        app.note("nothing was changed:")
    problems = [
        Problem(each["code"], each["text"], each.get("place"), each.get("next"))
        for each in said.get("problems", [])
    ]
    if problems:
        complain(app, problems)
