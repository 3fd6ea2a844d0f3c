-- value_part(run_id, step_slug, task_index, what, path, from_member, max_members, max_bytes): returns a
-- part of a large value: of the `input` or `output` (`what`) of a run, a step or a task, what is at this
-- path of keys and indexes. The first row is the part itself, without a name: its type, and how many
-- members it has, or characters. The others are its members from `from_member` on, by index, or by key in
-- the order of jsonb. A value is given whole while all together have less text than `max_bytes`; of a
-- string that is longer the beginning, of a part that is a string the characters from `from_member` on.
-- A step has the input of its first task. No row where there is no such value.
-- It keeps the value in a variable, since each look into a stored one would unpack it again.
-- Called by: commands.   Locks: nothing.
create or replace function pgflowd.value_part(
  run_id uuid, step_slug text default null, task_index int default null, what text default 'output',
  path text[] default '{}', from_member int default 0, max_members int default 200,
  max_bytes int default 65536)
returns table (name text, type text, length bigint, is_whole boolean, value jsonb)
language plpgsql stable set search_path = '', pg_temp as $$
#variable_conflict use_column
declare
  brief constant int := 200;  -- characters
  whole jsonb;
  part jsonb;
  names text[];
  room int := value_part.max_bytes;
begin
  whole := (case when value_part.what = 'input' and value_part.step_slug is not null
                   then pgflowd._task_input(value_part.run_id, value_part.step_slug,
                                            coalesce(value_part.task_index, 0))
                 else pgflowd._stored_value(value_part.run_id, value_part.step_slug,
                                            value_part.task_index, value_part.what)
            end) #> value_part.path;
  if whole is null then
    return;
  end if;
  type := jsonb_typeof(whole);
  length := pgflowd._json_length(whole);
  is_whole := type not in ('array', 'object');
  if type = 'string' then
    value := to_jsonb(substr(whole #>> '{}', value_part.from_member + 1, room));
    is_whole := value_part.from_member = 0 and length <= room;
  elsif is_whole then
    value := whole;
  end if;
  return next;

  names := case type
    when 'array' then array(
      select nr::text
        from generate_series(value_part.from_member,
                             least(length, value_part.from_member + value_part.max_members) - 1) as nr)
    when 'object' then array(
      select known.name
        from jsonb_object_keys(whole) with ordinality as known (name, nr)
       where known.nr > value_part.from_member order by known.nr limit value_part.max_members) end;
  foreach name in array coalesce(names, '{}') loop
    part := case type when 'array' then whole -> name::int else whole -> name end;
    value := null;
    is_whole := pg_column_size(part) <= 2 * room and octet_length(part::text) <= room;
    if is_whole then
      value := part;
      room := room - octet_length(part::text);
    elsif jsonb_typeof(part) = 'string' then
      value := to_jsonb(left(part #>> '{}', brief));
    end if;
    return query select value_part.name, jsonb_typeof(part), pgflowd._json_length(part), is_whole, value;
  end loop;
end $$;
