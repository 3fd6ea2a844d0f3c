-- ended_runs: runs that were ended by no report, and whose spans are yet to be exported. Only while
-- somebody exports (see traces); who does deletes them.
create table if not exists pgflowd.ended_runs (
  run_id uuid not null,
  constraint ended_runs_pkey primary key (run_id)
);
