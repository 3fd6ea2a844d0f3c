-- Migration 0047: how many runs of each old version are open. A released migration never changes.

drop function if exists pgflowd.served_versions();  -- its rows have one more column now
