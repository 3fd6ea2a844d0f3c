-- Schema pgflowd: what is ours beside the contract: leases, settings, history.
create schema if not exists pgflowd;
revoke usage on schema pgflowd from public;
comment on schema pgflowd is 'pgflowd: leases, settings and history beside schema pgflow';
