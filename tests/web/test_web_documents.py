"""Each page's document, as the API answers with it, is as its JSON Schema says."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from psycopg.types.json import Jsonb
from support import documents

from pgflowd.cli.commands import docs
from pgflowd.web.pages import PAGES

STATUS = json.loads((Path(__file__).parents[1] / "unit/status_document.json").read_text())
for _flow in STATUS["flows"]:
    _flow["worker_id"] = _flow["worker_id"] and STATUS["id"]
RUN, STEP = "/runs/{run}", "/runs/{run}/steps/{step}"
SCHEMAS = {
    "/": "api",
    "/runs": "runs-list",
    RUN: "runs-show",
    f"{RUN}?view=attempts": "runs-show",
    f"{RUN}?view=timeline": "runs-log",
    f"{RUN}?view=output": "runs-output",
    f"{RUN}?view=values": "api-runs-run-values",
    STEP: "runs-tasks",
    "/flows": "flows-list",
    "/flows/{flow}": "flows-show",
    "/flows/{flow}/start": "api-flows-flow-start",
    "/daemons": "daemons-list",
    "/daemons/{daemon}": "daemons-show",
    "/stalled": "stalled-list",
    "/dead": "dead-list",
    "/inbox": "tasks-list",
    "/signals": "signals-list",
    "/actions": "log",
    "/schedules": "schedules-list",
    "/database": "doctor",
    "/explain": "explain",
    "/explain/{code}": "explain",
}


def test_each_page_has_a_schema():
    views = {f"{page.path}?view={view}" for page in PAGES for view in page.views}

    assert {page.path for page in PAGES} | views == SCHEMAS.keys()


@pytest.fixture
def words(shop) -> dict[str, object]:
    """A run that failed, and what else the addresses name."""
    shop.do("update pgflow.flows set opt_max_attempts = 1")
    shop.run_through()
    run = shop.start("store_items", ["a", "b"])
    tasks = shop.claim("store_items", shop.worker("store_items"), 2)
    shop.complete(tasks[0])
    shop.fail(tasks[1], "no such shelf")
    shop.do("select pgflowd.signal(%s, 'paid')", shop.start("send_email", {}))
    shop.do("select pgflowd.tell_daemon(%s)", Jsonb(STATUS))
    daemon = STATUS["id"]
    return {"run": run, "step": "store", "flow": "store_items", "code": "E210", "daemon": daemon}


@pytest.mark.parametrize("path", SCHEMAS)
def test_the_api_answers_as_its_schema_says(web, words, path):
    address = "/overview" if path == "/" else path.format(**words)

    answer = web.get(f"/api/1{address}")

    assert answer.status_code == 200, answer.text
    name = "-".join(["api", *re.findall(r"\w+", path.replace("?view=", "/"))])
    for each in {name if path != "/" else "api", SCHEMAS[path]}:  # what its command prints, too
        documents.validator(docs.documents()[each]).validate(answer.json())
