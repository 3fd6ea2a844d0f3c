"""`pgflowd flows schema`: the JSON Schemas of what a flow and its steps take and return."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.commands.flow_definitions import flow_argument, flow_in_code, flows_in_code
from pgflowd.cli.groups import Command
from pgflowd.cli.params import STEP
from pgflowd.core.suggest import did_you_mean
from pgflowd.errors import UnknownFlow


class StepSchema(TypedDict):
    step: str
    parameters: Annotated[dict[str, Any], "the JSON Schema of what the step takes, by names"]
    output: Annotated[dict[str, Any] | None, "the JSON Schema of what it returns"]


class FlowSchema(TypedDict):
    """The JSON Schemas of a flow. Of types that are not decoded there is none."""

    flow: str
    input: Annotated[dict[str, Any] | None, "the JSON Schema of what runs take, or null"]
    steps: Annotated[list[StepSchema], "its steps"]


@click.command(cls=Command, prints=FlowSchema)
@flow_argument
@click.option("--step", metavar="SLUG", type=STEP, help="Only this step.")
@pass_app
def schema(app: App, flow: str, step: str | None) -> None:
    """Print the JSON Schema of what runs of a flow take, and of what its steps take and return.

    They are those of the types in the code; null for what has none, or only types of JSON.

    \b
    Example: pgflowd flows schema orders
             pgflowd flows schema orders --step price
    """
    code = flow_in_code(flows_in_code(app), flow)
    shape = code.shape or {}
    slugs = [each["slug"] for each in shape.get("steps") or []]
    if step is not None and step not in slugs:
        remedy = did_you_mean(step, slugs) or f"it has {', '.join(slugs)}"
        raise UnknownFlow(f"flow {flow} has no step '{step}'", next=remedy)
    none: dict[str, Any] = {"parameters": {}, "output": None}
    chosen = [step] if step else slugs
    steps: list[Any] = [{"step": slug, **code.schemas.get(slug, none)} for slug in chosen]
    found = FlowSchema(flow=flow, input=shape.get("inputSchema"), steps=steps)
    app.print_result(json.dumps(found, indent=2, ensure_ascii=False), found)
