-- Settings of the one transaction that migrates, and the lock that makes a second one wait.
-- Read committed, so that a migrate that waited for the lock sees what was done meanwhile. Bodies
-- are checked at their first call, since functions call each other in any order; statement_timeout
-- is off, since a migration may take long.
set transaction isolation level read committed;
set local client_encoding = 'UTF8';
set local check_function_bodies = off;
set local client_min_messages = warning;
set local statement_timeout = 0;
set local lock_timeout = '60s';
<printing>
do $$
begin
  if current_setting('search_path') <> '""' then
    raise exception 'this script needs one transaction around it'
      using errcode = 'PF032', hint = 'psql -1 -v ON_ERROR_STOP=1 -f script.sql';
  end if;
  if current_setting('server_version_num')::int / 10000 not between <oldest> and <newest> then
    raise exception 'the server is PostgreSQL %, and pgflowd needs <oldest> to <newest>',
                    current_setting('server_version')
      using errcode = 'PF033', hint = 'use a server of a supported version';
  end if;
  perform pg_advisory_xact_lock(1885824612, 0);
end
$$;
set local lock_timeout = '10s';
