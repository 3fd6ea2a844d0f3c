-- gated: a task of a message that a claim has read, and its fate: `go`: it may begin; `need`, `limit`: it
-- waits for a worker that has its `needs`, or for a place of `limit_key`, of which there are `most`;
-- `later`: another claim decides about that key; `more`: the claim has enough.
do $$
begin
  if to_regtype('pgflowd.gated') is null then
    create type pgflowd.gated as (
      msg_id bigint,
      run_id uuid,
      step_slug text,
      task_index int,
      fate text,
      needs text,
      limit_key text,
      most int
    );
  end if;
end $$;
