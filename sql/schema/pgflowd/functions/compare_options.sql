-- compare_options(flow_slug, shape): returns each option for which not all is the same: what the code
-- says (this shape), what it said when it was last deployed, and what the database has, which counts.
-- `step_slug` is '' for an option of the flow. `is_tuned`: somebody has changed it in the database, so
-- it stays; any other one becomes the code's when the flow is defined. A tuned option that the code now
-- has, too, is tuned no more. Options that decide what happens, such as what a step needs, cannot be
-- tuned: they follow the code. So does whether there is a limit. No rows for a flow that is not in the
-- database.
-- Called by: _define, deploy_version; workers, commands.   Locks: nothing.
create or replace function pgflowd.compare_options(flow_slug text, shape jsonb)
returns table (step_slug text, option text, code jsonb, deployed jsonb, database jsonb,
               is_tuned boolean)
language sql stable set search_path = '', pg_temp as $$
  with owner as (
    select '' as step_slug, 0::bigint as nr,
           pgflowd._default_options()
             || pgflowd._tunable_options(compare_options.shape -> 'options') as code,
           pgflowd._default_options() || coalesce(kept.deployed, '{}') as deployed,
           pgflowd._tunable_options(known.shape -> 'options') as database,
           pgflowd._followed_options(compare_options.shape -> 'options') as asked,
           pgflowd._followed_options(known.shape -> 'options') as has
      from pgflowd.flow_shape(compare_options.flow_slug) as known (shape)
      left join pgflowd.flow_options as kept on kept.flow_slug = compare_options.flow_slug
     where known.shape is not null
    union all
    select step.value ->> 'slug', step.nr, pgflowd._tunable_options(step.value -> 'options'),
           coalesce(kept.deployed, '{}'), pgflowd._tunable_options(other.value -> 'options'),
           pgflowd._followed_options(step.value -> 'options'),
           pgflowd._followed_options(other.value -> 'options')
      from pgflowd.flow_shape(compare_options.flow_slug) as known (shape)
     cross join lateral jsonb_array_elements(compare_options.shape -> 'steps')
                        with ordinality as step (value, nr)
      join lateral jsonb_array_elements(known.shape -> 'steps') as other (value)
        on other.value ->> 'slug' = step.value ->> 'slug'
      left join pgflowd.step_options as kept
        on kept.flow_slug = compare_options.flow_slug and kept.step_slug = step.value ->> 'slug'
  )
  select owner.step_slug, one.option, one.code, one.deployed, one.database, one.is_tuned
    from owner
   cross join lateral (
     select named.option, owner.code -> named.option as code,
            owner.deployed -> named.option as deployed, owner.database -> named.option as database,
            owner.database -> named.option is distinct from owner.deployed -> named.option
              and owner.database -> named.option is distinct from owner.code -> named.option
              and (named.option <> 'limit'
                   or owner.code ? 'limit' and owner.database ? 'limit') as is_tuned
       from jsonb_object_keys(owner.code || owner.deployed || owner.database) as named (option)
      where not (owner.code -> named.option is not distinct from owner.deployed -> named.option
                 and owner.code -> named.option is not distinct from owner.database -> named.option)
     union all
     select named.option, owner.asked -> named.option, owner.has -> named.option,
            owner.has -> named.option, false
       from jsonb_object_keys(owner.asked || owner.has) as named (option)
      where owner.asked -> named.option is distinct from owner.has -> named.option) as one
   order by owner.nr, one.option;
$$;
