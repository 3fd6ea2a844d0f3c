"""Status documents as nobody means them, in rows that any worker's role may write."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pgflowd.web.pages import PAGES
from support.shop import Shop

_INSERT = (
    "insert into pgflowd.daemons values (gen_random_uuid(), %s, 'h', 1, '1', {}, now(),"
    " now() + interval '1 h', %s, {}) returning daemon_id"
)
_WORKER = {"slug": {"a": 1}, "state": [], "error": "x", "worker_id": 7, "running": 1e300,
           "exits": [1, {"b": 2}], "max_concurrency": "many", "p50_s": True}  # fmt: skip
DEEP = "[" * 400 + "]" * 400
ODD: dict[str, str] = {  # SQL of type jsonb, by what is odd
    "problems are a text": """'{"problems":"x"}'""",
    "problems are numbers": """'{"problems":[1,2]}'""",
    "problems are true": """'{"problems":true}'""",
    "a problem of 20 MB": (
        "jsonb_build_object('problems', jsonb_build_array("
        "jsonb_build_object('text', repeat('x', 20000000), 'code', repeat('E', 1000000))))"
    ),
    "300,000 problems": (
        "(select jsonb_build_object('problems', jsonb_agg(jsonb_build_object('text', 'x' || n)))"
        " from generate_series(1, 300000) as n)"
    ),
    "problems of other types": (
        """'{"problems":[{"text":[1],"code":{"a":1},"flow":7,"next":true}]}'"""
    ),
    "an array": "'[1]'",
    "a text": """'"x"'""",
    "flows are a text": """'{"flows":"x"}'""",
    "flows of other types": f"'{json.dumps({'flows': [1, None, [], _WORKER]})}'",
    "flows of 20 MB": (
        "jsonb_build_object('flows', jsonb_build_array("
        "jsonb_build_object('slug', repeat('x', 20000000))))"
    ),
    "deep": f"""'{{"flows":{DEEP},"problems":{DEEP},"database":{DEEP}}}'""",
    "very deep": "('{\"a\":' || repeat('[', 5000) || repeat(']', 5000) || '}')::jsonb",
    "odd states and parts": (
        """'{"state":{},"database":{"state":7,"rtt_s":"x","clock_skew_s":1e400,"schema":[]},"""
        """"supervisor":[],"listener":1,"sweeper":{"interval_s":"x"},"http":[],"exporter":"x","""
        """"up_s":"x","version":[],"pid":{},"name":[]}'"""
    ),
}


def plant(shop: Shop, what: str) -> Any:
    """A row with this document; its id."""
    return shop.row(_INSERT.format("'-infinity'", ODD[what]), f"d {len(what)}", "\x1b[31modd")[0]


def addresses(daemon: Any) -> Iterator[str]:
    """The pages whose address needs no more than that."""
    words = {"daemon": daemon, "code": "E210", "flow": "store_items"}
    for page in PAGES:
        if "{run}" not in page.path:
            yield page.path.format(**words)
