-- After everything is applied: the queues of flows that were there already notify us too.
-- A queue of another owner is left as it is; its worker polls (W311).
do $$
declare
  flow record;
begin
  for flow in select flow_slug from pgflow.flows order by flow_slug loop
    begin
      perform pgflowd.watch_queue(flow.flow_slug);
    exception when insufficient_privilege then
      raise warning 'the queue of flow % belongs to another role, so it cannot notify us',
                    flow.flow_slug;
    end;
  end loop;
end
$$;
