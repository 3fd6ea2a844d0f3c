-- _may_be_unspent(run_id, step_slug, task_index, delay, at_most): whether an attempt whose handler asks for a
-- delay may be given back unspent: that ends no later than `at_most` after the first attempt since the last
-- one that was spent, or that waited, for which the handler asked for the same.
-- Called by: _with_standings.   Locks: nothing.
create or replace function pgflowd._may_be_unspent(
  run_id uuid, step_slug text, task_index int, delay interval, at_most interval)
returns boolean language sql stable set search_path = '', pg_temp as $$
  select now() + _may_be_unspent.delay
           <= coalesce(min(attempt.ended_at) filter (
                where attempt.outcome = 'released' and attempt.error_type = 'RetryAfter'
                  and attempt.token > coalesce(attempt.last_spent, 0)), now())
              + _may_be_unspent.at_most
    from (select one.outcome, one.error_type, one.ended_at, one.token,
                 max(one.token) filter (
                   where one.outcome in ('completed', 'failed', 'timed_out', 'crashed', 'late', 'suspended')
                      or one.error_type = 'E408') over () as last_spent
            from pgflowd.attempts as one
           where one.run_id = _may_be_unspent.run_id and one.step_slug = _may_be_unspent.step_slug
             and one.task_index = _may_be_unspent.task_index) as attempt;
$$;
