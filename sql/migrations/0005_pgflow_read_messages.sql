-- Migration 0005: each queue has an index of the messages that were read, by which recovery and
-- status find the tasks at work. A migration never changes.
-- A queue of another owner is left as it is: its tasks at work are found by a walk over it.
do $$
declare
  queue text;
begin
  for queue in
    select distinct named.it
      from pgflow.flows as flow
     cross join lateral (select 'q_' || lower(flow.flow_slug collate "C") as it) as named
     where to_regclass(format('pgmq.%I', named.it)) is not null
       and to_regclass(format('pgmq.%I', named.it || '_read_idx')) is null
     order by 1
  loop
    begin
      execute format('create index %I on pgmq.%I (msg_id) where read_ct > 0',
                     queue || '_read_idx', queue);
    exception when insufficient_privilege then
      raise warning 'queue % belongs to another role: status and recovery walk over it', queue;
    end;
  end loop;
end
$$;
