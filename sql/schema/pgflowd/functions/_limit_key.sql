-- _limit_key(name, path, value): the key of a limit with this name: the name itself, or with a path also
-- what stands there, which may be missing. A long one is shortened, so that it fits into an index.
-- Called by: _limit_items, _pass_gates.   Locks: nothing.
create or replace function pgflowd._limit_key(name text, path text[], value text)
returns text language sql immutable
return case when path is null then name
              when length(value) > 200 then concat(name, ':', left(value, 150), '…', md5(value))
              else concat(name, ':', value) end;
