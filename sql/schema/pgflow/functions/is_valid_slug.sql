-- is_valid_slug(slug): whether a flow or a step may have this name.
-- A letter or underscore, then letters, digits and underscores; at most 128 characters; and
-- not `run`, the key under which older workers find the run's input. Null is not a slug: false.
-- Called by: check constraints.   Locks: nothing.
create or replace function pgflow.is_valid_slug(slug text)
returns boolean language sql immutable parallel safe set search_path = '', pg_temp as $$
  select coalesce(length(is_valid_slug.slug) <= 128
                  and is_valid_slug.slug ~ '^[a-zA-Z_][a-zA-Z0-9_]*$'
                  and is_valid_slug.slug <> 'run', false);
$$;
