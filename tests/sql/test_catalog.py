"""
The catalog of schema pgflow is the published one, plus exactly the additions that are documented.

`catalog.json` lists tables, columns, constraints, functions and types as PostgreSQL prints them.
Indexes are not part of the contract, so they are not compared.
"""

import json
import re
from pathlib import Path

import pytest
from support.covers import covers

CATALOG = json.loads((Path(__file__).parent / "catalog.json").read_text())
FUNCTIONS = {function["name"]: function for function in CATALOG["functions"]}

ADDED_COLUMNS = {
    "flows": {"queue_mode", "flow_type", "is_gated", "starts"},
    "runs": {"error_message", "is_paused", "is_watched"},
    "steps": {"queue_name", "is_gated", "settles"},
    "step_tasks": {"queue_name"},
    "worker_functions": {"start_mode"},
}
MAY_HAVE_MORE_STATUSES = {("step_tasks", "valid_status")}
LATER_OVERLOADS = {"start_tasks", "ensure_flow_compiled"}
ELIXIR_FUNCTIONS = {
    "analyze_and_create_flow": "p_flow_slug text, p_options jsonb, p_steps jsonb",
    "flow_exists": "p_flow_slug text",
    "get_flow_input": "p_run_id uuid",
    "get_step_output": "p_run_id uuid, p_step_slug text",
    "register_worker": "p_worker_id uuid, p_queue_name text, p_function_name text",
    "recover_stalled_tasks": "p_stale_threshold double precision",
    "prune_data_older_than": "p_retention_interval interval, p_flow_slugs text[]",
}

COLUMNS = """
select attname as name, format_type(atttypid, atttypmod) as type, not attnotnull as nullable,
       pg_get_expr(adbin, adrelid) as default, attgenerated <> '' as generated
  from pg_attribute left join pg_attrdef on (adrelid, adnum) = (attrelid, attnum)
 where attrelid = ('pgflow.' || %s)::regclass and attnum > 0 and not attisdropped order by attnum
"""
CONSTRAINTS = """
select conname as name, contype::text as type, condeferrable as deferrable,
       confdeltype::text as on_delete, confrelid::regclass::text as target,
       pg_get_expr(conbin, conrelid) as expression,
       (select array_agg(attname::text order by n) from unnest(conkey) with ordinality as k(num, n)
          join pg_attribute on attrelid = conrelid and attnum = num) as columns,
       (select array_agg(attname::text order by n) from unnest(confkey) with ordinality as k(num, n)
          join pg_attribute on attrelid = confrelid and attnum = num) as target_columns
  from pg_constraint where conrelid = ('pgflow.' || %s)::regclass and contype::text = %s
"""
PROCEDURES = """
select proname as name, pronargs as count, proargnames as names,
       (select array_agg(format_type(t, null) order by n)
          from unnest(coalesce(proallargtypes, proargtypes::oid[]))
               with ordinality as a(t, n)) as types,
       pg_get_function_identity_arguments(p.oid) as identity,
       (select array_agg(pg_get_function_arg_default(p.oid, n)) from generate_series(1, pronargs) n)
         as default_texts,
       pg_get_function_result(p.oid) as result, provolatile::text as volatility,
       prosecdef as definer, proisstrict as strict, proconfig as settings
  from pg_proc p where pronamespace = 'pgflow'::regnamespace and prokind = 'f'
"""


def folded(text):
    return re.sub(r"\s+", " ", text) if text else text


def procedures(plain, name):
    return plain.rows(PROCEDURES + " and proname = %s order by pronargs", name)


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_the_published_columns_with_type_null_and_default(plain, table):
    found = {column.pop("name"): column for column in plain.rows(COLUMNS, table)}

    for wanted in CATALOG["tables"][table]["columns"]:
        column = found[wanted["name"]]
        assert column["type"] == wanted["type"], wanted["name"]
        assert column["nullable"] == wanted["nullable"], wanted["name"]
        assert column["default"] == wanted["default"], wanted["name"]
        assert not column["generated"]


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_no_column_beyond_the_documented_ones(plain, table):
    found = {column["name"]: column for column in plain.rows(COLUMNS, table)}
    published = {column["name"] for column in CATALOG["tables"][table]["columns"]}
    added = set(found) - published - ADDED_COLUMNS.get(table, set())

    assert not added
    for name in set(found) - published:
        column = found[name]
        assert column["nullable"] or column["default"] or column["generated"], name


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ("flows", "flow_type"),
        ("steps", "queue_name"),
        ("step_tasks", "queue_name"),
        ("worker_functions", "start_mode"),
    ],
)
def test_a_column_of_a_later_or_the_elixir_edition_is_offered(plain, table, name):
    assert name in {column["name"] for column in plain.rows(COLUMNS, table)}


def test_the_first_column_of_a_run_is_its_id(plain):
    assert plain.rows(COLUMNS, "runs")[0]["name"] == "run_id"


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_the_published_primary_key(plain, table):
    wanted = CATALOG["tables"][table]["primary_key"]

    (found,) = plain.rows(CONSTRAINTS, table, "p")

    assert (found["name"], found["columns"]) == (wanted["name"], wanted["columns"])


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_exactly_the_published_foreign_keys(plain, table):
    actions = {"a": "no action", "n": "set null", "c": "cascade"}

    found = {
        (
            row["name"],
            tuple(row["columns"]),
            row["target"],
            tuple(row["target_columns"]),
            actions[row["on_delete"]],
            row["deferrable"],
        )
        for row in plain.rows(CONSTRAINTS, table, "f")
    }

    assert found == {
        (
            key["name"],
            tuple(key["columns"]),
            key["references_table"],
            tuple(key["references_columns"]),
            key["on_delete"],
            key["deferrable"],
        )
        for key in CATALOG["tables"][table]["foreign_keys"]
    }


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_the_published_unique_constraints(plain, table):
    found = {(row["name"], tuple(row["columns"])) for row in plain.rows(CONSTRAINTS, table, "u")}

    for wanted in CATALOG["tables"][table]["unique"]:
        assert (wanted["name"], tuple(wanted["columns"])) in found


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_has_the_published_checks(plain, table):
    found = {row["name"]: folded(row["expression"]) for row in plain.rows(CONSTRAINTS, table, "c")}

    for wanted in CATALOG["tables"][table]["checks"]:
        expression = found.pop(wanted["name"])
        if (table, wanted["name"]) in MAY_HAVE_MORE_STATUSES:
            more = set(re.findall(r"'(\w+)'", expression))
            assert more >= set(re.findall(r"'(\w+)'", wanted["expression"]))
            assert more <= {"queued", "started", "completed", "failed", "skipped", "cancelled"}
        else:
            assert expression == wanted["expression"]
    for expression in found.values():  # an added check may read added columns only
        assert any(name in expression for name in ADDED_COLUMNS.get(table, ())), expression


@pytest.mark.parametrize("table", CATALOG["tables"])
def test_a_table_is_plain_without_row_security_and_triggers(plain, table):
    found = plain.row(
        "select relkind::text, relrowsecurity, relhastriggers from pg_class"
        " where oid = ('pgflow.' || %s)::regclass",
        table,
    )

    assert found["relkind"] == "r"
    assert not found["relrowsecurity"]
    assert (
        plain.rows(
            "select tgname from pg_trigger where not tgisinternal"
            " and tgrelid = ('pgflow.' || %s)::regclass",
            table,
        )
        == []
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_published_signature(plain, name):
    wanted = FUNCTIONS[name]
    arguments = [dict(argument) for argument in wanted["arguments"]]
    if name == "track_worker_function":
        arguments.append({"name": "start_mode", "type": "text", "default": "'http'::text"})
    if name == "ensure_flow_compiled":
        arguments[-1]["default"] = None  # else a call with two arguments would be ambiguous

    found = {tuple((row["types"] or [])[: row["count"]]): row for row in procedures(plain, name)}[
        tuple(argument["type"] for argument in arguments)
    ]

    assert (found["names"] or [])[: found["count"]] == [one["name"] for one in arguments]
    assert (found["default_texts"] or []) == [one["default"] for one in arguments]
    assert found["result"] == result_of(wanted)
    assert found["volatility"] == wanted["volatility"][0]
    assert found["strict"] == wanted["strict"]


def result_of(wanted):
    if wanted["returned_columns"]:
        columns = ", ".join(f"{one['name']} {one['type']}" for one in wanted["returned_columns"])
        return f"TABLE({columns})"
    return wanted["returns"]


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - LATER_OVERLOADS))
def test_a_public_function_has_no_overload(plain, name):
    assert len(procedures(plain, name)) == 1


@pytest.mark.parametrize("name", FUNCTIONS)
def test_only_the_published_functions_are_security_definer(plain, name):
    wanted = FUNCTIONS[name]["security_definer"]

    assert {row["definer"] for row in procedures(plain, name)} == {wanted}


SAFE_PATH = 'search_path="", pg_temp'  # empty; and types of a temporary schema shadow nothing


def test_every_function_with_a_search_path_has_a_safe_one(plain):
    for row in plain.rows(PROCEDURES):
        paths = [one for one in row["settings"] or [] if one.startswith("search_path=")]
        assert paths in ([], [SAFE_PATH]), row["name"]
        assert paths or not row["definer"], row["name"]


@pytest.mark.parametrize("name", ["get_run_with_states", "start_flow_with_states"])
def test_functions_that_clients_may_call_have_an_empty_search_path(plain, name):
    (row,) = procedures(plain, name)

    assert SAFE_PATH in (row["settings"] or [])


@pytest.mark.parametrize(
    "name",
    [name for name, one in FUNCTIONS.items() if one["settings"] == ['search_path=""']],
)
def test_functions_published_with_an_empty_search_path_have_it(plain, name):
    for row in procedures(plain, name):
        assert SAFE_PATH in (row["settings"] or []), row["identity"]


@pytest.mark.parametrize("name", ELIXIR_FUNCTIONS)
def test_a_function_of_the_elixir_edition_has_its_parameters(plain, name):
    assert ELIXIR_FUNCTIONS[name] in {row["identity"] for row in procedures(plain, name)}


def test_a_claimed_task_has_the_published_attributes_in_their_order(plain):
    (wanted,) = CATALOG["types"]["composite"]

    found = plain.rows(
        "select attname as name, format_type(atttypid, atttypmod) as type from pg_attribute"
        " where attrelid = 'pgflow.step_task_record'::regclass and attnum > 0"
        " and not attisdropped order by attnum"
    )

    assert found[: len(wanted["attributes"])] == wanted["attributes"]
    assert found[len(wanted["attributes"]) :] in (
        [],
        [{"name": "attempts_count", "type": "integer"}],
    )


def test_a_constraint_named_initial_tasks_known_when_started_exists(plain):
    assert plain.value(
        "select count(*) from information_schema.table_constraints"
        " where constraint_schema = 'pgflow'"
        " and constraint_name = 'initial_tasks_known_when_started'"
    )


def test_no_table_is_published_that_is_not_there(plain):
    found = plain.column("select tablename::text from pg_tables where schemaname = 'pgflow'")

    assert set(CATALOG["tables"]) <= set(found)


@covers("use 3")
def test_a_function_that_sets_a_planner_switch_compiles_nothing(plain):
    """A plan whose scan or sort is switched off costs 1e10, so PostgreSQL would compile it."""
    query = """
    select p.oid::regprocedure::text from pg_proc p
     where pronamespace in ('pgflow'::regnamespace, 'pgflowd'::regnamespace)
       and exists (select from unnest(proconfig) as s where s like 'enable%')
       and not 'jit=off' = any (proconfig) order by 1
    """
    assert plain.column(query) == []
