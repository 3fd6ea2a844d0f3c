-- claimed_task: what pgflowd.claim returns for each task: the record of the contract, and the
-- lease. A type of its own, since the claim's parameters bear some of these names.
-- `waited_s` is the time since the task could first be claimed; null for later attempts. `trace` is what _trace_of returns, for claims
-- that ask for it.
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
      lease_until timestamptz,
      waited_s float8,
      trace jsonb
    );
  end if;
  if not exists (select from pg_attribute as attribute
                  where attribute.attrelid = 'pgflowd.claimed_task'::regclass
                    and attribute.attname = 'waited_s') then
    alter type pgflowd.claimed_task add attribute waited_s float8;
  end if;
  if not exists (select from pg_attribute as attribute
                  where attribute.attrelid = 'pgflowd.claimed_task'::regclass
                    and attribute.attname = 'trace') then
    alter type pgflowd.claimed_task add attribute trace jsonb;
  end if;
end $$;
