-- _run_id_of_key(flow_slug, key): the id of the run of this flow that is started with this key; null
-- without a key. A uuid of version 8, made of a hash.
-- Called by: _found_runs, _runs_of_keys, _start, start_child, _undo_run_id.   Locks: nothing.
create or replace function pgflowd._run_id_of_key(flow_slug text, key text)
returns uuid language sql immutable strict set search_path = '', pg_temp as $$
  select encode(set_byte(set_byte(hash.bytes, 6, 128 | (get_byte(hash.bytes, 6) & 15)),
                         8, 128 | (get_byte(hash.bytes, 8) & 63)), 'hex')::uuid
    from (select substr(sha256(convert_to(_run_id_of_key.flow_slug || ' ' || _run_id_of_key.key, 'UTF8')),
                        1, 16) as bytes) as hash;
$$;
