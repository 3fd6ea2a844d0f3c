"""
`pgflowd flows diff`, `deploy`, `set`, `rollback` and `prune-versions`: flows and their code.

Child processes import the flows' code, this process never does. `cli.terminal.flow_view`
prints what differs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

import click

from pgflowd import db
from pgflowd.cli.app import App, CommandRefused, pass_app
from pgflowd.cli.database import database, execute, require_flow
from pgflowd.cli.groups import Command
from pgflowd.cli.params import FLOW, completing, flow_argument, option_value
from pgflowd.cli.problems import print_each, print_problems, results_of
from pgflowd.cli.terminal.flow_view import print_comparison
from pgflowd.core.definition.options import TUNABLE, OptionValues, Owner, option_text
from pgflowd.core.exit_codes import ExitCode
from pgflowd.core.settings.load import missing_flows
from pgflowd.core.text import did_you_mean
from pgflowd.core.undo import PREFIX
from pgflowd.errors import ConfigError, DatabaseError, FlowError, Problem, UnknownFlow

if TYPE_CHECKING:
    from pgflowd.db.definitions import Connection
    from pgflowd.processes.supervisor.discover import Discovered, DiscoveredFlow


class FlowDiff(TypedDict):
    """A flow in the code, compared with the one in the database."""

    flow: str
    place: Annotated[str | None, "where it is in the code"]
    exists: Annotated[bool, "whether the database has it"]
    same: Annotated[bool, "whether the shapes are the same"]
    version: Annotated[str | None, "the version that was compared"]
    current: Annotated[str | None, "the current one"]
    differences: Annotated[Sequence[str], "of the shapes"]
    options: Annotated[Sequence[OptionValues], "those of which not all values are the same"]


class DeployedFlow(TypedDict):
    flow: str
    result: Annotated[
        Literal["created", "changed", "unchanged", "versioned", "current"],
        "`versioned` if a changed shape has become the next version, `current` if an older one is"
        " current again",
    ]
    changes: Annotated[Sequence[str], "of options"]
    version: Annotated[str, "its flow in the database"]


class DeployedFlows(TypedDict):
    flows: Annotated[list[DeployedFlow], "those of the config"]


class FlowScripts(TypedDict):
    sql: Annotated[dict[str, str], "a script for each slug"]


class CurrentFlow(TypedDict):
    flow: str
    current: Annotated[str, "the flow in the database to which starts go"]


class DeletedVersions(TypedDict):
    flow: str
    deleted: Annotated[Sequence[str], "the versions that were deleted"]


class OptionChange(TypedDict):
    option: Annotated[str, "its name"]
    before: Annotated[Any, "its value before"]
    after: Annotated[Any, "its value now"]


class ChangedOptions(TypedDict):
    flow: str
    step: Annotated[str | None, "the slug of the step; null for options of the flow"]
    changes: Annotated[list[OptionChange], "those that were made"]


@click.command(cls=Command, prints=FlowDiff)
@flow_argument
@pass_app
def diff(app: App, flow: str) -> None:
    """Compare a flow in the code with the one in the database.

    Each option that differs is shown as the code has it, as the code had it when it was last
    deployed, and as the database has it, which applies. The exit code is 1 if the shapes differ.

    \b
    Example: pgflowd flows diff analyze_website
    """
    code = flow_in_code(flows_in_code(app), flow)
    with database(app) as conn:
        found = db.flows.compare(conn, flow, code.shape or {})
        problems = db.definitions.unserved_versions(conn, code.code) if found.shape else []
    is_same = found.exists and not found.shape
    document = FlowDiff(
        flow=flow, place=code.place, exists=found.exists, same=is_same,
        version=found.flow_slug or None, current=found.current or None,
        differences=found.shape, options=found.values,
    )  # fmt: skip
    app.print_result(lambda: print_comparison(app, flow, code.place, found), document)
    if problems:
        print_problems(app, problems)
    if not is_same:
        app.exit(ExitCode.NO)


@click.command(cls=Command, prints={"": DeployedFlows, "--sql": FlowScripts})
@click.argument("flow", metavar="[FLOW]...", type=FLOW, nargs=-1)
@click.option(
    "--take-code", is_flag=True, help="Let the code's options replace those tuned in the database."
)
@click.option("--yes", is_flag=True, help="Do not ask before a changed flow gets a version.")
@click.option("--code", metavar="TEXT", help="What is deployed, such as a commit; it is kept.")
@click.option("--sql", "as_sql", is_flag=True, help="Print the SQL instead of executing it.")
@pass_app
def deploy(
    app: App, flow: Sequence[str], take_code: bool, yes: bool, code: str | None, as_sql: bool
) -> None:
    """Bring flows into the database: definition, queue and trigger. By default all flows.

    Of a flow that exists the options follow the code, but for those that somebody has tuned in
    the database. A changed shape becomes the next version of its flow, to which starts go from
    then on; open runs end in their version. If the role pgflow_owner owns the schema, the command
    acts as this role.

    \b
    Example: pgflowd flows deploy
             pgflowd flows deploy analyze_website --yes --code 8f3a2c1
             pgflowd flows deploy analyze_website --sql | psql -1 mydb
    """
    discovered = flows_in_code(app)
    chosen = [flow_in_code(discovered, slug) for slug in dict.fromkeys(flow)]
    if not chosen:
        _raise_errors(discovered.problems)
    chosen = discovered.with_undo_flows(chosen or discovered.flows)
    if as_sql:
        texts = {
            one.slug: db.flows.script(one.slug, one.shape or {}, one.place, may_change=yes)
            for one in chosen
        }
        app.print_result("\n\n".join(texts.values()), FlowScripts(sql=texts))
        return
    width = max((len(one.slug) for one in chosen), default=0)
    warnings: list[Problem] = []
    with database(app) as conn:

        def one_deployed(one: DiscoveredFlow) -> tuple[str, DeployedFlow]:
            may_change, shape = _may_change(app, conn, one, yes=yes), one.shape or {}
            done = db.flows.deploy(
                conn, one.slug, shape, take_code=take_code, may_change=may_change, code=code
            )
            warnings.extend(done.warnings)
            slug = one.slug
            result: Literal["created", "changed", "unchanged", "versioned", "current"]
            result = "created" if done.is_new else "changed" if done.changes else "unchanged"
            text = f"{slug:<{width}}  {result}"
            if may_change:
                result = "versioned" if done.is_new else "current"
                text = f"{slug:<{width}}  starts go to {done.flow_slug} now"
            lines = [text, *(f"{'':<{width}}  {change}" for change in done.changes)]
            return "\n".join(lines), DeployedFlow(
                flow=slug, result=result, changes=done.changes, version=done.flow_slug
            )

        print_each(app, "flows", results_of(chosen, one_deployed))
    if warnings:
        print_problems(app, warnings)


def _may_change(app: App, conn: Connection, flow: DiscoveredFlow, *, yes: bool) -> bool:
    """Whether starts are to go to another version; show what differs, and ask."""
    with db.flows.as_owner(conn):
        found = db.flows.compare(conn, flow.slug, flow.shape or {})
        if not found.exists or not found.is_new_version:
            return False
        problems = db.definitions.unserved_versions(conn, flow.code)
    for text in found.shape:
        app.note(f"{flow.slug}: {text}")
    if problems:
        print_problems(app, problems)
    question = f"{flow.slug} has another shape than {found.current}. Make it the next version?"
    if not found.shape:
        question = f"{flow.slug} has the shape of {found.flow_slug}. Make that one current again?"
    try:
        app.confirm(question, yes=yes)
    except CommandRefused as error:
        remedy = f"`pgflowd flows deploy {flow.slug} --yes` does it"
        raise DatabaseError(str(error), code="E306", next=remedy) from error
    return True


@click.command(cls=Command, prints=CurrentFlow)
@flow_argument
@pass_app
def rollback(app: App, flow: str) -> None:
    """Let starts of a flow go to the version before the current one again.

    Runs that are under way end in the version in which they began.

    \b
    Example: pgflowd flows rollback analyze_website
    """
    with database(app) as conn:
        require_flow(conn, flow)
        current = execute(conn, db.definitions.rollback(flow))
    app.print_result(f"{flow}: starts go to {current}", CurrentFlow(flow=flow, current=current))


@click.command("prune-versions", cls=Command, prints=DeletedVersions)
@flow_argument
@pass_app
def prune_versions(app: App, flow: str) -> None:
    """Delete the old versions of a flow of which no run is left, and those that undid their runs.

    The current version stays, and the first one, whose slug is the name of the flow.

    \b
    Example: pgflowd flows prune-versions analyze_website
    """
    with database(app) as conn:
        require_flow(conn, flow)
        undo_flow = f"{PREFIX}{flow}"
        gone = execute(conn, db.definitions.prune_versions(flow))
        if execute(conn, db.flows.flow_shape(undo_flow)) is not None:
            gone = [*gone, *execute(conn, db.definitions.prune_versions(undo_flow))]
    text = f"deleted: {', '.join(gone)}" if gone else f"{flow} has no old version without runs"
    app.print_result(text, DeletedVersions(flow=flow, deleted=gone))


@click.command("set", cls=Command, prints=ChangedOptions)
@click.argument("target", metavar="FLOW[/STEP]", type=FLOW)
@click.argument(
    "given", metavar="OPTION=VALUE...", type=option_value, nargs=-1, required=True,
    shell_complete=completing(lambda: (f"{name}=" for name in TUNABLE)),
)  # fmt: skip
@pass_app
def set_(app: App, target: str, given: Sequence[tuple[str, Any]]) -> None:
    """Tune options of a flow, or of a step of it, in the database.

    The options are timeout, max_attempts and base_delay; of a step also start_delay, limit (the
    places of one that it has), crash_limit and on_crash_limit. They count from the next attempt,
    limits from the next claim. The code changes a tuned option no more, until both say the
    same or `flows deploy --take-code` writes the code's. `unset` gives it its default.

    \b
    Example: pgflowd flows set analyze_website/summary timeout=30 max_attempts=5
             pgflowd flows set crawl/fetch limit=4
    """
    flow, _, step = target.partition("/")
    of_steps = [name for name, _ in given if Owner.FLOW not in TUNABLE[name].owners]
    if of_steps and not step:
        raise click.UsageError(f"{of_steps[0]} is an option of a step: name it, as in {flow}/STEP")
    changes: list[OptionChange] = []
    with database(app) as conn:
        require_flow(conn, flow)
        with db.connection.translated(conn), conn.transaction():
            for name, value in given:
                setting = db.definitions.set_option(flow, step, TUNABLE[name].json_name, value)
                before = execute(conn, setting)
                changes.append(OptionChange(option=name, before=before, after=value))
    texts = [
        f"{target}: {each['option']} {option_text(each['before'])} → {option_text(each['after'])}"
        for each in changes
    ]
    document = ChangedOptions(flow=flow, step=step or None, changes=changes)
    app.print_result("\n".join(texts), document)


COMMANDS = (diff, deploy, set_, rollback, prune_versions)


def flows_in_code(app: App) -> Discovered:
    """The flows in the code. E111 if the config names no modules."""
    from pgflowd.processes.supervisor.discover import discover

    settings = app.settings
    if problems := missing_flows(settings, settings.file or "pgflowd.toml"):
        raise ConfigError(problems)
    return discover(settings)


def flow_in_code(discovered: Discovered, slug: str) -> DiscoveredFlow:
    """The valid flow with this slug; else raise every problem that keeps it from loading."""
    found = discovered.flow(slug)
    if found is not None and found.shape is not None:
        return found
    _raise_errors(discovered.problems if found is None else found.problems)
    remedy = did_you_mean(slug, discovered.slugs) or "see [pgflowd] flows in the config"
    raise UnknownFlow(f"there is no flow '{slug}' in the configured modules", next=remedy)


def _raise_errors(problems: Iterable[Problem]) -> None:
    if errors := [problem for problem in problems if not problem.is_warning]:
        raise FlowError(errors)
