-- step_task_record: what a claim returns for each task; workers of other runtimes read it by
-- position.
do $$
begin
  if to_regtype('pgflow.step_task_record') is null then
    create type pgflow.step_task_record as (
      flow_slug text,
      run_id uuid,
      step_slug text,
      input jsonb,
      msg_id bigint,
      task_index int,
      flow_input jsonb
    );
  end if;
end $$;
