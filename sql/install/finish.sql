-- After everything is applied: gives the queues of existing flows their index and their notify trigger. A
-- queue of another owner is left as it is; its worker polls (W311).
do $$
declare
  flow record;
begin
  for flow in select known.flow_slug from pgflow.flows as known order by known.flow_slug loop
    begin
      perform pgflow._create_queue(flow.flow_slug);
    exception when insufficient_privilege then
      raise warning 'queue % belongs to another role: no notify trigger, its worker polls',
                    pgflow._queue_name(flow.flow_slug);
    end;
  end loop;
end
$$;
