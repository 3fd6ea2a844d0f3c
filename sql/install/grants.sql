-- Who has no right of its own calls no function that has its owner's rights: PUBLIC loses each, in every
-- database. A trigger's can be called by nobody. Rights that were given to a role by name stay. Workers of
-- other runtimes had theirs on pgflow from PUBLIC: who may change tasks keeps those by name.
do $$
declare
  statement text;
begin
  for statement in
    with opened as (
      select proc.oid::regprocedure as signature, proc.proname as name, schema.nspname as schema
        from pg_catalog.pg_proc as proc
        join pg_catalog.pg_namespace as schema on schema.oid = proc.pronamespace
       where proc.prosecdef and proc.prorettype <> 'trigger'::regtype
         and schema.nspname in ('pgflow', 'pgflowd')
         and pg_has_role(proc.proowner, 'usage')
         and exists (select from aclexplode(coalesce(proc.proacl, acldefault('f', proc.proowner))) as given
                      where given.grantee = 0)
    )
    select format('grant execute on routine %s to %s', opened.signature, worker.role)
      from opened
     cross join (select distinct given.grantee::regrole as role
                   from pg_catalog.pg_class as class
                  cross join lateral aclexplode(class.relacl) as given
                  where class.oid = to_regclass('pgflow.step_tasks') and given.privilege_type = 'UPDATE'
                    and given.grantee not in (0, class.relowner)) as worker
     where opened.schema = 'pgflow' and opened.name !~ '^(setup|cleanup)_'
     union all
    select format('revoke execute on routine %s from public', opened.signature) from opened
  loop
    execute statement;
  end loop;
end
$$;

-- The rights of the roles, in databases where sql/roles.sql was run; elsewhere nothing happens.
-- A function that runs with its caller's rights can do no more than its caller, so the rights
-- on tables decide what a worker can do: it cannot define or delete flows, purge queues,
-- delete runs or change options. Functions that run with their owner's rights are listed by name.
-- Functions that are not volatile cannot write; viewers may call those.
-- Only objects whose owner this role may act as are changed.
do $$
declare
  statement text;
begin
  if to_regrole('pgflow_worker') is null or to_regnamespace('pgflowd') is null then
    return;
  elsif not has_schema_privilege('pgflow_worker', 'pgflowd', 'usage') then
    return;
  end if;

  for statement in
    select format('grant usage on schema %I to %s', schema.nspname, wanted.roles)
      from (values ('pgflow', 'pgflow_worker, pgflow_starter, pgflow_viewer'),
                   ('pgflowd', 'pgflow_starter, pgflow_viewer'),
                   ('pgmq', 'pgflow_worker, pgflow_viewer')) as wanted (schema, roles)
      join pg_catalog.pg_namespace as schema on schema.nspname = wanted.schema
     where pg_has_role(schema.nspowner, 'usage')
    union all
    select format('revoke insert, update on %s from pgflow_worker', class.oid::regclass)  -- of an older schema
      from pg_catalog.pg_class as class
     where class.oid in (to_regclass('pgflowd.actions'), to_regclass('pgflowd.signals'))
       and pg_has_role(class.relowner, 'usage')
    union all
    select format('grant %s on %s to %s', wanted.rights, class.oid::regclass, wanted.roles)
      from (values ('pgflow\.(flows|steps|deps)', 'select', 'pgflow_worker'),
                   ('pgflow\.(runs|step_states)', 'select, update', 'pgflow_worker'),
                   ('pgflow\.(step_tasks|workers)', 'select, insert, update', 'pgflow_worker'),
                   ('pgflowd\.(settings|step_options|flow_options|versions|schema_history|attempt_history|run_status|worker_status|paused_flows|schedules)', 'select', 'pgflow_worker'),
                   ('pgflowd\.(runs|attempts|awaits|minutes|doorbells|waits|worker_caps|slots|locks|checkpoints|sweepers|daemons|traces|ended_runs)',
                    'select, insert, update, delete', 'pgflow_worker'),
                   -- nobody says which role of the server has acted: session_role has its default
                   ('pgflowd\.actions', 'select, insert (actor, action, flow_slug, run_id, step_slug, task_index, reason, data)',
                    'pgflow_worker'),
                   ('pgflowd\.signals',
                    'select, insert (run_id, name, payload, dedup, sent_by), delete,'
                    ' update (sent_at, is_new, step_slug, task_index, consumed_at)', 'pgflow_worker'),
                   ('pgflowd\.followers', 'select, update, delete', 'pgflow_worker'),
                   ('pgmq\.meta', 'select', 'pgflow_worker, pgflow_viewer'),
                   ('pgmq\.notify_insert_throttle', 'select, update', 'pgflow_worker'),
                   ('pgflowd?\.\w+', 'select', 'pgflow_viewer')) as wanted (relation, rights, roles)
      join pg_catalog.pg_class as class on class.relkind in ('r', 'p', 'v')
      join pg_catalog.pg_namespace as schema on schema.oid = class.relnamespace
     where schema.nspname || '.' || class.relname ~ ('^' || wanted.relation || '$')
       and pg_has_role(class.relowner, 'usage')
    union all
    select format('revoke execute on routine %s from public', proc.oid::regprocedure)
      from pg_catalog.pg_proc as proc
      join pg_catalog.pg_namespace as schema on schema.oid = proc.pronamespace
     where schema.nspname in ('pgflow', 'pgflowd', 'pgmq')
       and pg_has_role(proc.proowner, 'usage')
    union all
    select format('grant execute on routine %s to %s', proc.oid::regprocedure, wanted.roles)
      from (values
        ('pgflow', 'pgflow_worker', false, 'ivs',
         '^(?!create_flow|add_step|_create_flow|_create_queue|delete_flow|prune_)'),
        ('pgflow', 'pgflow_worker', true, 'v',
         '^(_followed|_forget_waits|_lock_starts|_mark_ended|_mark_failed|_start_wished|_waits|start_flow_with_states|get_run_with_states|requeue_stalled_tasks|recover_stalled_tasks)$'),
        ('pgflow', 'pgflow_worker', true, 's', '^(_is_paused|_run_in_input|_untrusted_owner)$'),
        ('pgflow', 'pgflow_starter', true, 'v', '^(start_flow_with_states|get_run_with_states)$'),
        ('pgflow', 'pgflow_viewer', true, 'v', '^get_run_with_states$'),
        ('pgflow', 'pgflow_viewer', false, 'is', ''),
        ('pgflowd', 'pgflow_worker', true, 'sv',
         '^(answer|cancel|current_flow|fire_schedule|follow|get_run|input_schema|pause|pause_flow|pause_schedule|postpone_schedule|give_up_task|remove_schedule|requeue_task|require_schema|reschedule|restart_worker|resume|resume_flow|resume_schedule|retry|schedule_troubles|set_schedule|signal|start|start_child|start_runs|task_claim|task_complete|task_extend|task_fail|task_release|task_wake|tell_core|tick|prune_expired|undo|_process_due_awaits|_process_due_runs|postpone_due)$'),
        ('pgflowd', 'pgflow_starter', true, 'sv', '^(answer|cancel|current_flow|follow|get_run|input_schema|pause|require_schema|reschedule|resume|signal|start|start_runs|undo)$'),
        ('pgflowd', 'pgflow_viewer', true, 'sv', '^(current_flow|follow|get_run|input_schema|require_schema)$'),
        ('pgflow', 'pgflow_operator', true, 'v', '^start_flow_with_states$'),
        ('pgflowd', 'pgflow_operator', true, 'v',
         '^(answer|cancel|delete_run|fire_schedule|give_up_task|pause|pause_flow|pause_schedule|requeue_task|reschedule|restart_worker|resume|resume_flow|resume_schedule|restart_worker|retry|signal|start|start_runs|task_claim|task_complete|task_extend|task_fail|task_release|task_wake|undo)$'),
        ('pgflowd', 'pgflow_worker', false, 'ivs', '^(?!set_setting|watch_queue|share_queue|_?prune|_?delete_runs?)'),
        ('pgflowd', 'pgflow_viewer', false, 'is', ''),
        ('pgflowd', 'pgflow_viewer', false, 'v', '^look_at_daemons$'),
        ('pgmq', 'pgflow_owner', false, 'ivs', ''),
        ('pgmq', 'pgflow_worker', false, 'ivs',
         '^(read|read_with_poll|send|send_batch|_send_batch|_validate_batch_params|archive|delete|set_vt|format_table_name|list_queues)$'),
        ('pgmq', 'pgflow_viewer', false, 'ivs', '^(metrics|metrics_all|list_queues|format_table_name)$')
      ) as wanted (schema, roles, is_definer, volatile, names)
      join pg_catalog.pg_namespace as schema on schema.nspname = wanted.schema
      join pg_catalog.pg_proc as proc on proc.pronamespace = schema.oid
     where proc.prosecdef = wanted.is_definer and proc.proname ~ wanted.names
       and strpos(wanted.volatile, proc.provolatile::text) > 0
       and to_regrole(split_part(wanted.roles, ',', 1)) is not null  -- pgflow_operator came later
       and pg_has_role(proc.proowner, 'usage')
  loop
    execute statement;
  end loop;

  if to_regprocedure('pgflowd.share_queue(text)') is not null then
    perform pgflowd.share_queue(queue.queue_name)
       from pgflow.flows as flow cross join lateral pgflowd._queues(flow.flow_slug) as queue;
  end if;
end
$$;
