-- _set_schedules(flow_slug, shape): the schedules of origin `code` become those of this shape. One that has
-- another expression or zone counts from now; a pause stays.
-- A name that an operator or another flow has is left to them.
-- Called by: _define, deploy_version.   Locks: what it changes; the caller has the flow's definition.
create or replace function pgflowd._set_schedules(flow_slug text, shape jsonb)
returns void language plpgsql set search_path = '', pg_temp as $$
declare
  asked record;
begin
  delete from pgflowd.schedules as gone
   where gone.flow_slug = _set_schedules.flow_slug and gone.origin = 'code'
     and not coalesce(_set_schedules.shape -> 'schedules', '[]')
             @> jsonb_build_array(jsonb_build_object('name', gone.name));
  for asked in
    select one.name, one.cron, one.timezone, one.input, one.overlap, one.catchup
      from jsonb_to_recordset(_set_schedules.shape -> 'schedules')
             as one (name text, cron text, timezone text, input jsonb, overlap text, catchup text)
      left join pgflowd.schedules as known on known.name = one.name
     where known.name is null
        or known.flow_slug = _set_schedules.flow_slug and known.origin = 'code'
           and (one.cron, one.timezone, one.input, one.overlap, one.catchup) is distinct from
               (known.cron, known.timezone, known.input, known.overlap, known.catchup)
     order by one.name
  loop
    perform pgflowd._write_schedule(asked.name, _set_schedules.flow_slug, asked.cron, asked.input,
                                    asked.timezone, asked.overlap, asked.catchup, 'code', null);
  end loop;
end $$;
