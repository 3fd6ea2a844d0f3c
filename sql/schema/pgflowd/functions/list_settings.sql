-- list_settings(): returns each setting that all daemons share, with what it takes and means, and who has
-- changed it when; null for one that has its default.
-- Called by: setting, set_setting; `pgflowd db settings`.   Locks: nothing.
create or replace function pgflowd.list_settings()
returns table (name text, value jsonb, takes text, means text, changed_by text,
               changed_at timestamptz)
language sql stable set search_path = '', pg_temp as $$
  select known.name, coalesce(kept.value, known.preset),
         case when known.words is not null
              then regexp_replace(array_to_string(known.words, ', '), ', (\w+)$', ' or \1')
              when known.lowest is not null then format('%s to %s', known.lowest, known.highest)
              else 'null, or a duration from 1h' end,
         known.means, kept.changed_by, kept.changed_at
    from pgflowd._known_settings() as known
    left join pgflowd.settings as kept on kept.name = known.name
   order by known.name;
$$;
