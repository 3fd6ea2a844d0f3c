-- _set_crash_limits(flow_slug, shape): how many workers a task of each step may end, and what happens
-- then, is what this shape says.
-- Called by: define.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_crash_limits(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '' as $$
begin
  insert into pgflowd.step_options as known (flow_slug, step_slug, crash_limit, on_crash_limit)
  select _set_crash_limits.flow_slug, asked.slug, asked.crash_limit, asked.on_crash_limit
    from (select one.value ->> 'slug' as slug,
                 (one.value #>> '{options,crashLimit}')::int as crash_limit,
                 one.value #>> '{options,onCrashLimit}' as on_crash_limit
            from jsonb_array_elements(_set_crash_limits.shape -> 'steps') as one) as asked
    left join pgflowd.step_options as option
      on option.flow_slug = _set_crash_limits.flow_slug and option.step_slug = asked.slug
   where (asked.crash_limit, asked.on_crash_limit)
         is distinct from (option.crash_limit, option.on_crash_limit)
  on conflict on constraint step_options_pkey do update
     set crash_limit = excluded.crash_limit, on_crash_limit = excluded.on_crash_limit;
end $$;
