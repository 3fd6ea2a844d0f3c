-- After everything is applied: the queues of flows that were there already notify us too.
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
      raise warning 'queue % belongs to another role, so it cannot notify us', queue;
    end;
  end loop;
end
$$;
