-- _is_gated(flow): whether a step of this flow has a gate. Queries inline it, so it has no settings of
-- its own.
-- Called by: claim, task_claim.   Locks: nothing.
create or replace function pgflowd._is_gated(flow pgflow.flows)
returns boolean language sql immutable
return (flow).is_gated;
