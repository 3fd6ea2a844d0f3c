-- worker_functions: HTTP functions that ensure_workers calls on the hosted platform.
create table if not exists pgflow.worker_functions (
  function_name text not null,
  enabled boolean not null default true,
  debounce interval not null default '6 seconds',
  last_invoked_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  start_mode text not null default 'http',
  constraint worker_functions_pkey primary key (function_name),
  constraint worker_functions_debounce_check check (debounce >= interval '1 second'),
  constraint worker_functions_start_mode_check check (start_mode in ('http', 'process'))
);
