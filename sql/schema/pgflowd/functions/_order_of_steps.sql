-- _order_of_steps(flow_slug): returns each pair of steps of which one comes after the other, directly or not.
-- Called by: _undoes.   Locks: nothing.
create or replace function pgflowd._order_of_steps(flow_slug text)
returns table (earlier text, later text)
language sql stable set search_path = '', pg_temp as $$
  with recursive pairs (earlier, later) as (
    select dep.dep_slug, dep.step_slug from pgflow.deps as dep where dep.flow_slug = _order_of_steps.flow_slug
    union
    select pair.earlier, dep.step_slug
      from pairs as pair
      join pgflow.deps as dep on dep.flow_slug = _order_of_steps.flow_slug and dep.dep_slug = pair.later)
  select pair.earlier, pair.later from pairs as pair;
$$;
