-- _vault_secret(name): returns a secret of the platform's vault; an empty one counts as absent.
-- Called by: ensure_workers.   Locks: nothing.
create or replace function pgflow._vault_secret(name text)
returns text language plpgsql stable set search_path = '', pg_temp as $$
begin
  perform pgflow._require_trusted('vault');
  return (select nullif(secret.decrypted_secret, '')
            from vault.decrypted_secrets as secret
           where secret.name = _vault_secret.name limit 1);
end $$;
