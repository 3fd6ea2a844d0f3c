"""
Flows that change: a shape by a number, and what must hold of runs in versions with such shapes.

Steps come and go, their deps and kinds change. A step returns an array with its slug and what it
got, so an output tells by which shape its run went.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from pgflowd import Context, Flow

SLUGS = ("first", "a", "b", "c", "d")
Execute = Callable[[Context, list[Any]], list[Any]]  # what a step does with what it got

# each returns no row if all is well; `first` of an output is the slug, the rest what the step got
TROUBLES = {
    "a step gets what the shape of its version says": """
        select run.flow_slug, task.run_id, task.step_slug, task.task_index, task.output
          from pgflowd.versions as known
          join pgflow.runs as run using (flow_slug)
          join pgflow.step_tasks as task using (run_id)
          join pgflow.steps as step
            on step.flow_slug = run.flow_slug and step.step_slug = task.step_slug
         cross join lateral (
           select jsonb_build_array(task.step_slug) || coalesce(
                    jsonb_agg(dep.dep_slug order by dep.dep_slug collate "C"), '[]') as output
             from pgflow.deps as dep
            where dep.flow_slug = step.flow_slug and dep.step_slug = step.step_slug) as single
         where task.status = 'completed'
           and case step.step_type
                 when 'map' then task.output - 2 <> jsonb_build_array(task.step_slug, 'element')
                 else task.output <> single.output end
    """,
    "a run ends with the steps and outputs of its version": """
        select run.flow_slug, run.run_id, run.output
          from pgflowd.versions as known
          join pgflow.runs as run using (flow_slug)
         where run.status = 'completed'
           and (array(select step.step_slug from pgflow.steps as step
                       where step.flow_slug = run.flow_slug order by 1)
                <> array(select state.step_slug from pgflow.step_states as state
                          where state.run_id = run.run_id and state.status = 'completed' order by 1)
                or array(select jsonb_object_keys(run.output) order by 1)
                <> array(select step.step_slug from pgflow.steps as step
                          where step.flow_slug = run.flow_slug and not exists (
                            select from pgflow.deps as dep
                             where dep.flow_slug = step.flow_slug
                               and dep.dep_slug = step.step_slug) order by 1))
    """,
    "no task is executed by code that does not know it": """
        select attempt.run_id, attempt.step_slug, attempt.error_message
          from pgflowd.versions as known
          join pgflow.runs as run using (flow_slug)
          join pgflowd.attempts as attempt using (run_id)
         where attempt.outcome = 'failed'
    """,
    "the shape of a version stays": """
        select flow_slug from pgflowd.versions
         where fingerprint <> pgflowd._shape_fingerprint(pgflowd.flow_shape(flow_slug))
    """,
    "one version is current": """
        select name from pgflowd.versions
         group by name having count(*) filter (where is_current) <> 1
    """,
    "an option that nobody tuned is the one last deployed": """
        select flow.flow_slug, flow.opt_max_attempts, kept.deployed
          from pgflow.flows as flow left join pgflowd.flow_options as kept using (flow_slug)
         where flow.flow_slug in (select flow_slug from pgflowd.versions)
           and flow.opt_max_attempts <> coalesce((kept.deployed ->> 'maxAttempts')::int, 3)
    """,
}


def changing(name: str, number: int, execute: Execute, *, keeps_all: bool, **options: Any) -> Flow:
    """The flow with the shape of this number; `keeps_all` handlers for steps that others have."""
    chance = random.Random(f"changing {number}")

    def single(ctx: Context, input: Mapping[str, Any]) -> list[Any]:
        return [ctx.step_slug, *execute(ctx, sorted(input.keys() - {"run"}))]

    def element(ctx: Context, item: Any) -> list[Any]:
        return [ctx.step_slug, *execute(ctx, ["element", item])]

    def of_any_kind(ctx: Context, input: Any = None, item: Any = None) -> list[Any]:
        return element(ctx, item) if input is None else single(ctx, input)

    flow, known = Flow(name, **options), ["first"]
    flow.step(slug="first")(single)
    for slug in chance.sample(SLUGS[1:], chance.randint(1, len(SLUGS) - 1)):
        deps = chance.sample(known, chance.randint(1, min(2, len(known))))
        if chance.random() < 0.3:
            flow.map(slug=slug, over=deps[0])(element)
        else:
            flow.step(slug=slug, depends_on=deps)(single)
        known.append(slug)
    for slug in SLUGS if keeps_all else ():
        flow.retired(since=1_000_000, slug=slug)(of_any_kind)
    return flow
