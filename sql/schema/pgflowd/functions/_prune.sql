-- _prune(completed_before, others_before, flow_slug, max_runs, only_count, after_at, after_run, labels): deletes
-- runs, whole families of them, that completed, or ended otherwise, before these moments (null: none
-- such), or only counts them. It looks at the thousand runs that began next after `after_at` (null: the
-- oldest), takes so many of them, and returns how many went, and after which run to go on: null at the
-- end. Of those it takes the first whose families have some thousand tasks together at most, or one. What
-- begins a family decides about its flow and its labels (null: any), and its children go with it. A run stays with its
-- whole family while one of it is open, younger, locked, or needed (_needed_runs). The query is planned
-- for the very flows, so that each has its index; what comes first is found by an index whatever the
-- statistics say, hence no sort and no bitmap.
-- Called by: prune, prune_expired, prune_next.
-- Locks: the runs, ascending, skipping locked ones; then all that is deleted.
create or replace function pgflowd._prune(
  completed_before timestamptz, others_before timestamptz, flow_slug text, max_runs int,
  only_count boolean, inout after_at timestamptz, inout after_run uuid, out pruned int,
  labels jsonb default null)
language plpgsql set search_path = '', pg_temp
set jit = off set enable_sort = off set enable_bitmapscan = off as $$
declare
  width constant int := 1000;
  parts text;  -- of the query: one for each version of the flow
  looked record;
  ended uuid[];
  last_nr int;
  most int := _prune.max_runs;
  found record;
  held uuid[];
  going uuid[];
begin
  select string_agg(format($query$
    (select run.run_id, run.started_at as at from pgflow.runs as run
      where (run.started_at, run.run_id) > ($1, $2) and run.started_at < $3 %1$s
      order by run.started_at, run.run_id limit $4)
     union all
    (select run.run_id, run.created_at from pgflowd.runs as run
      where (run.created_at, run.run_id) > ($1, $2) and run.created_at < $3 %1$s
        and run.state <> 'started'
      order by run.created_at, run.run_id limit $4)
    $query$, 'and run.flow_slug = ' || quote_literal(flow.slug)), ' union all ') into parts
    from unnest(case when _prune.flow_slug is null then array[null::text]
                     else pgflowd.flows_of(_prune.flow_slug) end) as flow (slug);
  execute format($query$
    select array_agg(next.run_id) as run_ids, array_agg(next.at) as ats, count(*)::int as number
      from (%s order by at, run_id limit $4) as next
    $query$, parts)
    into looked
    using coalesce(_prune.after_at, '-infinity'),
          coalesce(_prune.after_run, '00000000-0000-0000-0000-000000000000'),
          greatest(_prune.completed_before, _prune.others_before), width;
  ended := array(select pgflowd._ended_before(
    looked.run_ids, _prune.completed_before, _prune.others_before));
  if _prune.labels is not null then
    ended := array(select given.run_id from unnest(ended) with ordinality as given (run_id, nr)
                    where exists (select from pgflowd.runs as run
                                   where run.run_id = given.run_id and run.labels @> _prune.labels)
                    order by given.nr);
  end if;
  if not _prune.only_count then
    most := pgflowd._first_families(ended[:_prune.max_runs], 100 * _prune.max_runs);
  end if;
  last_nr := case when cardinality(ended) > most
                  then array_position(looked.run_ids, ended[most])
                  when looked.number = width then width end;
  after_at := looked.ats[last_nr];
  after_run := looked.run_ids[last_nr];

  select array_agg(family.first) as firsts, array_agg(family.run_id) as run_ids
    into found from pgflowd._families(ended[:most]) as family;
  held := found.run_ids;
  if not _prune.only_count then
    held := array(select run.run_id from pgflow.runs as run
                   where run.run_id = any (found.run_ids) order by run.run_id
                     for update skip locked)
            || array(select run.run_id from pgflowd.runs as run
                      where run.run_id = any (found.run_ids) and run.state = 'ended'
                      order by run.run_id for update skip locked);
  end if;
  held := array(
    select pgflowd._ended_before(held, _prune.completed_before, _prune.others_before)
    except select pgflowd._needed_runs(held));
  going := array(
    select member.run_id
      from (select one.run_id, bool_and(one.run_id = any (held)) over (partition by one.first) as is_whole
              from unnest(found.firsts, found.run_ids) as one (first, run_id)) as member
     where member.is_whole);
  pruned := cardinality(going);
  if pruned > 0 and not _prune.only_count then
    perform pgflowd._delete_messages(going, 'a');
    perform pgflowd._delete_runs(going);
  end if;
end $$;
