-- Settings of the one transaction that migrates, and the lock that keeps a second one waiting.
-- Names resolve in pg_catalog only; bodies are checked when they run, since functions call
-- each other in any order; statement_timeout is off, as a migration may take its time.
set local search_path = '';
set local check_function_bodies = off;
set local client_min_messages = warning;
set local statement_timeout = 0;
set local lock_timeout = '60s';
select pg_catalog.pg_advisory_xact_lock(1885824612, 0);
set local lock_timeout = '10s';
