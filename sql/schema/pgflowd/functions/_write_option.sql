-- _write_option(flow_slug, step_slug, option, value): from now on this option of the flow (step '') or
-- step has this value in the database; null: it is unset, of a flow it has its default. It counts from
-- the next attempt, a limit from the next claim. The value must fit (set_option, checks of flows). Of
-- other options nothing is written: they follow the code (define).
-- Called by: _define, deploy_version, set_option.   Locks: what it changes; see refill_limits.
create or replace function pgflowd._write_option(
  flow_slug text, step_slug text, option text, value jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  is_of_flow constant boolean := _write_option.step_slug = '';
  given constant jsonb := coalesce(nullif(_write_option.value, 'null'),
    case when is_of_flow then pgflowd._default_options() -> _write_option.option end);
  field constant text := (select known.field from pgflowd._options() as known
                           where known.name = _write_option.option and not known.is_mode);
  key text;
begin
  if field is null then
    return;
  elsif is_of_flow then
    execute format('update pgflow.flows set %I = $2 where flow_slug = $1', field)
      using _write_option.flow_slug, given::int;
  elsif field like 'opt\_%' then
    execute format('update pgflow.steps set %I = $3 where flow_slug = $1 and step_slug = $2', field)
      using _write_option.flow_slug, _write_option.step_slug, given::int;
  elsif field <> 'limit_slots' then
    execute format(
      'insert into pgflowd.step_options (flow_slug, step_slug, %1$I)'
      ' select $1, $2, made.%1$I from jsonb_populate_record(null::pgflowd.step_options, $3) as made'
      ' on conflict on constraint step_options_pkey do update set %1$I = excluded.%1$I', field)
      using _write_option.flow_slug, _write_option.step_slug, jsonb_build_object(field, given);
  elsif given is not null then  -- whether there is a limit is not decided here
    update pgflowd.step_options as known set limit_slots = given::int
     where known.flow_slug = _write_option.flow_slug
       and known.step_slug = _write_option.step_slug and known.limit_slots is not null;
    for key in
      select wait.name
        from pgflowd.step_options as known
        join pgflowd.waits as wait
          on wait.kind = 'limit' and not wait.is_paused
         and (wait.name = known.limit_name or starts_with(wait.name, known.limit_name || ':'))
       where known.flow_slug = _write_option.flow_slug
         and known.step_slug = _write_option.step_slug
       group by 1 order by 1 limit 1000
    loop
      perform pgflowd._try_fill_slots(key);
    end loop;
  end if;
end $$;
