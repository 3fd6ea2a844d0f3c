"""`pgflowd wake`: starts the worker of a sleeping flow, without waiting for work."""

from __future__ import annotations

from typing import Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.daemon_client import ask
from pgflowd.cli.exits import CommandRefused
from pgflowd.cli.groups import Command
from pgflowd.cli.params import FLOW
from pgflowd.core.documents.daemon import ChildWord
from pgflowd.core.supervision.tree import ChildState
from pgflowd.errors import RunError

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
@click.argument("flow", metavar="FLOW", type=FLOW)
@pass_app
def wake(app: App, flow: str) -> None:
    """Start the worker of a flow that sleeps.

    A flow without work sleeps after sleep_after, and wakes by itself when there is work.

    \b
    Example: pgflowd wake send_email
    """
    answer = ask(app, "wake", flow=flow)
    if answer.get("error"):
        raise RunError(answer["error"], code=answer["code"], next=answer["next"])
    if (why := _NOT_SERVED.get(answer["state"])) is not None:
        raise CommandRefused(f"{flow} {why}")
    text = "wakes" if answer["was_asleep"] else f"does not sleep: it is {answer['state']}"
    app.print_result(f"{flow} {text}", answer)
