-- Keeps the settings of a transaction that another migration program has begun, which goes on in it.
do $$
begin
  perform pg_catalog.set_config('pgflowd.settings_before', pg_catalog.jsonb_object_agg(
            name, pg_catalog.current_setting(name))::text, true)
     from pg_catalog.unnest(array[
            'client_encoding', 'check_function_bodies', 'client_min_messages', 'statement_timeout',
            'lock_timeout', 'search_path', 'quote_all_identifiers', 'standard_conforming_strings',
            'intervalstyle', 'datestyle', 'timezone', 'bytea_output', 'extra_float_digits']) as name;
end
$$;
