-- Gives the transaction of another migration program its settings back.
do $$
begin
  perform pg_catalog.set_config(key, value, true)
     from pg_catalog.jsonb_each_text(
            pg_catalog.current_setting('pgflowd.settings_before')::jsonb);
end
$$;
