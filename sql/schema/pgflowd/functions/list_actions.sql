-- list_actions(run_id, after, actor, max_actions): returns what people and clients did, the newest
-- first: to this run, at this moment or later, by this actor; null means any. With an actor and no run
-- it looks at the newest 100,000.
-- Called by: `pgflowd log`; operators.   Locks: nothing.
create or replace function pgflowd.list_actions(
  run_id uuid default null, after timestamptz default null, actor text default null,
  max_actions int default 20)
returns setof pgflowd.actions language sql stable set search_path = '', pg_temp as $$
  select found.*
    from ((select action.* from pgflowd.actions as action
            where list_actions.run_id is null
              and action.at >= coalesce(list_actions.after, '-infinity')
            order by action.at desc limit 100000)
           union all
          (select action.* from pgflowd.actions as action
            where action.run_id = list_actions.run_id
              and action.at >= coalesce(list_actions.after, '-infinity'))) as found
   where list_actions.actor is null or found.actor = list_actions.actor
   order by found.at desc, found.action_id desc
   limit list_actions.max_actions;
$$;
