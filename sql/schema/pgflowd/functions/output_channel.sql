-- output_channel(run_id): returns the channel on which workers send what the handlers of a run print.
-- Every role that may connect can listen on a channel whose name it knows, so the name has a secret
-- of this database in it: only roles that may read the settings know it.
-- Called by: workers, `pgflowd runs follow`.   Locks: nothing.
create or replace function pgflowd.output_channel(run_id uuid)
returns text language plpgsql stable set search_path = '', pg_temp as $$
begin
  return (select 'pgflow:output:' || left(encode(sha256(convert_to(
                   (kept.value #>> '{}') || output_channel.run_id, 'UTF8')), 'hex'), 32)
            from pgflowd.settings as kept where kept.name = 'output_secret');
end $$;
