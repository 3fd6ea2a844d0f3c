-- After everything is applied: puts the notify trigger on the queues of existing flows.
-- A queue of another owner is left as it is; its worker polls (W311).
do $$
declare
  queue text;
begin
  for queue in
    select distinct known.queue_name
      from pgflow.flows as flow cross join lateral pgflowd._queues(flow.flow_slug) as known
     order by 1
  loop
    begin
      perform pgflowd.watch_queue(queue);
    exception when insufficient_privilege then
      raise warning 'queue % belongs to another role: no notify trigger, its worker polls', queue;
    end;
  end loop;
end
$$;
