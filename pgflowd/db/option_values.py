"""The queries that compare options in code and database, and tune them."""

from __future__ import annotations

import json
from typing import Any

from pgflowd.core.definition.option_values import OptionValues
from pgflowd.core.definition.shape import Shape
from pgflowd.core.json import decode
from pgflowd.db.query import Query, Rows, only


def option_values(slug: str, shape: Shape) -> Query[list[OptionValues]]:
    """Return the options of which code, database and last deployment do not say the same."""

    def read(rows: Rows) -> list[OptionValues]:
        return [
            OptionValues(step, key, decode(code), decode(deployed), decode(known), *tuned)
            for step, key, code, deployed, known, *tuned in rows
        ]

    return Query(_OPTION_VALUES, (slug, json.dumps(shape)), read)


def set_option(slug: str, step: str, key: str, value: Any) -> Query[Any]:
    """Tune an option in the database; return its value before. None: it is unset."""
    params = (slug, step, key, None if value is None else json.dumps(value))
    return Query(_SET_OPTION, params, lambda rows: decode(only(rows)))


_OPTION_VALUES = """
select one.step_slug, one.option, one.code::text, one.deployed::text, one.database::text,
       one.is_tuned, action.actor, action.at
  from (select %s::text as flow_slug, %s::jsonb as shape) as given
 cross join lateral pgflowd.compare_options(given.flow_slug, given.shape) as one
  left join lateral (
    select known.actor, known.at from pgflowd.actions as known
     where one.is_tuned and known.run_id is null
       and known.flow_slug in (given.flow_slug, pgflowd._name_of(given.flow_slug))
       and known.action = 'set_option' and coalesce(known.step_slug, '') = one.step_slug
       and known.data ->> 'option' = one.option
     order by known.action_id desc limit 1) as action on true
"""
_SET_OPTION = "select pgflowd.set_option(%s, %s, %s, %s::jsonb, session_user)"
