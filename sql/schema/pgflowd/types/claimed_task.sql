-- claimed_task: what pgflowd.claim returns for each task: the record of the contract, and the
-- lease. A type of its own, since the claim's parameters bear some of these names.
do $$
begin
  if to_regtype('pgflowd.claimed_task') is null then
    create type pgflowd.claimed_task as (
      flow_slug text,
      run_id uuid,
      step_slug text,
      input jsonb,
      msg_id bigint,
      task_index int,
      flow_input jsonb,
      token bigint,
      attempt int,
      max_attempts int,
      timeout int,
      lease_until timestamptz
    );
  end if;
end $$;
