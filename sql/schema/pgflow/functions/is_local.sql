-- is_local(): whether this is the platform's local development database, whose secret is public.
-- Called by: ensure_flow_compiled, ensure_workers.   Locks: nothing.
create or replace function pgflow.is_local()
returns boolean language sql stable parallel safe set search_path = '', pg_temp as $$
  select coalesce(current_setting('app.settings.jwt_secret', true)
                  = 'super-secret-jwt-token-with-at-least-32-characters-long', false);
$$;
