-- runs: values for which pgflow.runs has no column; only runs that need one have a row.
create table if not exists pgflowd.runs (
  run_id uuid not null,
  cancelled_at timestamptz,
  cancelled_by text,
  cancel_reason text,
  constraint runs_pkey primary key (run_id),
  constraint runs_run_id_fkey foreign key (run_id)
    references pgflow.runs (run_id) on delete cascade
);
