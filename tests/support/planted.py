"""
What an attacker can put into their temporary schema: types, tables, functions and operators of the
names that our code uses. Each of them counts when it is executed as somebody else.
"""

from __future__ import annotations

import re
from typing import Any

from psycopg import Connection

from pgflowd.resources import shipped

_TRAP = """
create temporary sequence calls;
grant all on sequence pg_temp.calls to public;
create function pg_temp.trap() returns boolean language plpgsql as $$
begin
  if current_user operator(pg_catalog.<>) session_user then
    perform pg_catalog.nextval('pg_temp.calls');
  end if;
  return true;
end $$;
grant execute on function pg_temp.trap() to public;
"""
# a domain for each name, over the type itself where there may be one; that makes an array type, too
_TYPES = """
do $plant$
declare
  planted pg_catalog.record;
begin
  for planted in
    select type.typname as name,
           case when type.typtype in ('b', 'r', 'm', 'd', 'e') then type.oid
                else 'pg_catalog.text'::pg_catalog.regtype end as base
      from pg_catalog.pg_type as type
     where type.typnamespace operator(pg_catalog.=) 'pg_catalog'::pg_catalog.regnamespace
       and type.typcategory operator(pg_catalog.<>) 'A' and type.typtype operator(pg_catalog.<>) 'c'
  loop
    execute pg_catalog.format('create domain pg_temp.%I as %s check (pg_temp.trap())',
                              planted.name, pg_catalog.format_type(planted.base, null));
  end loop;
end $plant$
"""
_RELATIONS = """
do $plant$
declare
  planted pg_catalog.record;
begin
  for planted in
    select class.relname as name,
           pg_catalog.min(pg_catalog.format('%I.%I', schema.nspname, class.relname)) as it
      from pg_catalog.pg_class as class
      join pg_catalog.pg_namespace as schema on schema.oid operator(pg_catalog.=) class.relnamespace
     where schema.nspname operator(pg_catalog.=) any ('{pgflow,pgflowd,pgmq,pg_catalog}')
       and class.relkind operator(pg_catalog.=) any ('{r,v,p}')
       and class.relname operator(pg_catalog.!~) '^pg_(temp|toast)'
     group by class.relname
  loop
    begin
      execute pg_catalog.format('create view pg_temp.%I as select * from %s where pg_temp.trap()',
                                planted.name, planted.it);
    exception when others then  -- no usage of its schema, or a column of a pseudo-type
      execute pg_catalog.format('create view pg_temp.%I as select pg_temp.trap()', planted.name);
    end;
    execute pg_catalog.format('grant all on pg_temp.%I to public', planted.name);
  end loop;
end $plant$
"""
# as many functions of each name as it has forms without polymorphic or other pseudo-types
_FUNCTIONS = """
do $plant$
declare
  planted pg_catalog.record;
begin
  for planted in
    select proc.proname as name, proc.pronargs as length,
           pg_catalog.pg_get_function_identity_arguments(proc.oid) as arguments
      from pg_catalog.pg_proc as proc
     where proc.proname operator(pg_catalog.=) any (<names>)
       and proc.pronamespace operator(pg_catalog.=) any (
             '{pg_catalog,pgflow,pgflowd,pgmq}'::pg_catalog.regnamespace[])
       and proc.prokind operator(pg_catalog.=) 'f'
  loop
    begin
      execute pg_catalog.format(
        'create function pg_temp.%I(%s) returns boolean language sql as ''select pg_temp.trap()''',
        planted.name, planted.arguments);
    exception when others then
      null;  -- one with a pseudo-type, or planted already
    end;
  end loop;
end $plant$
"""
_OPERATORS = """
create function pg_temp.trap(pg_catalog.{type}, pg_catalog.{type}) returns boolean language sql
  as 'select pg_temp.trap()';
"""
_OPERATOR = """
create operator pg_temp.{sign} (leftarg = pg_catalog.{type}, rightarg = pg_catalog.{type},
                                function = pg_temp.trap);
"""
_SIGNS = ("=", "<>", "<", ">", "<=", ">=", "||", "->", "->>", "<@", "@>", "&&", "?", "+", "-", "~")
_CALLED = re.compile(r"\b([a-z_]\w+) ?\(")


def plant(conn: Connection[Any]) -> None:
    """Fill the temporary schema of this session."""
    for script in (_TRAP, _TYPES, _RELATIONS, _FUNCTIONS.replace("<names>", _names())):
        conn.execute(script.encode())
    for type_ in ("text", "uuid", "jsonb", "int4", "int8", "timestamptz", "bool"):
        conn.execute(_OPERATORS.format(type=type_).encode())
        for sign in _SIGNS:
            conn.execute(_OPERATOR.format(sign=sign, type=type_).encode())


def has_fired(conn: Connection[Any]) -> bool:
    """Whether something that was planted has been executed as another user."""
    row = conn.execute(b"select is_called from pg_temp.calls").fetchone()
    return bool(row and row[0])


def _names() -> str:
    """An SQL array of the names that are called anywhere in the schema."""
    files = shipped("sql").glob("schema/**/*.sql")
    names = {name for file in files for name in _CALLED.findall(file.read_text())}
    return f"'{{{','.join(sorted(names))}}}'::pg_catalog.text[]"
