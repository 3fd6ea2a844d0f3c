"""The pages of the dashboard, without a browser."""

from __future__ import annotations

import html
import json
import re
import shlex
import socket
from contextlib import contextmanager
from urllib.parse import quote

import httpx
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.types.json import Jsonb
from support import web_states
from support.covers import covers
from web.conftest import OF_OUR_PAGE, anybody, serving

from pgflowd.cli.main import run
from pgflowd.db import schema
from pgflowd.web import app
from pgflowd.web.pages import PAGES
from pgflowd.web.text import of_markdown


def test_the_overview_shows_each_flow(web, shop):
    shop.start("store_items", ["a"])

    answer = web.get("/")

    assert answer.status_code == 200
    assert "store_items" in answer.text
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")
    assert answer.headers["cache-control"] == "no-store"


def test_a_page_and_the_api_show_the_same_document(web, shop):
    started = shop.start("store_items", ["a"])

    (listed,) = web.get("/api/1/runs?flow=store_items").json()["runs"]

    assert listed["run_id"] == str(started)
    assert str(started) in web.get("/runs?flow=store_items").text


@covers("E506", "E507")
@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/api/1/runs?flw=x", 400, "E506"),
        ("/api/1/runs?flow=x&flow=y", 400, "E506"),
        ("/api/1/nothing", 404, "E507"),
        ("/api/1/assets/x", 404, "E507"),
    ],
)
def test_an_error_is_what_commands_print(web, path, status, code):
    answer = web.get(path)

    assert answer.status_code == status
    assert [problem["code"] for problem in answer.json()["errors"]] == [code]


@pytest.fixture
def words(shop):
    """A database with all that pages show."""
    return web_states.full(shop)


def test_pages_show_what_their_commands_print(web, database, words, capsys):
    commands = {
        "/runs?status=completed&flow=analyze_website": "runs",
        f"/runs/{words['run']}": "steps",
        f"/runs/{words['run']}?view=attempts": "attempts",
        f"/runs/{words['run']}?view=timeline": "events",
        f"/runs/{words['run']}?view=output": "attempts",
        f"/runs/{words['map']}/steps/store?status=completed": "tasks",
        "/flows": "flows",
        "/flows/analyze_website": "shape",
        "/stalled": "tasks",
        "/dead?flow=send_email": "tasks",
        "/signals": "signals",
        "/actions?actor=jane": "actions",
        "/schedules": "schedules",
        "/explain/E210": "text",
    }
    for path, key in commands.items():
        page = web.get(path)
        command = page.text.partition('<code class="same">')[2].partition("</code>")[0]
        printed = printed_by(command.replace("&#39;", "'"), database, capsys)

        shown = web.get(f"/api/1{path}").json()[key]

        assert page.status_code == 200
        assert shown, path
        if isinstance(shown, list):  # a page lists more
            shown = shown[: len(printed[key])]
        assert without_changes(shown) == without_changes(printed[key]), path


def printed_by(command, database, capsys):
    arguments = [*shlex.split(command)[1:], "--database-url", database.dsn, "--json"]
    assert run(arguments) == 0, command
    return json.loads(capsys.readouterr().out)


def without_changes(part):
    """A document without what another reading of it says in other words."""
    if isinstance(part, dict):
        left_out = ("import_s", "next_at", "stalled_at", "share")
        return {key: without_changes(each) for key, each in part.items() if key not in left_out}
    return [without_changes(each) for each in part] if isinstance(part, list) else part


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        ("/flows/analyse_website", 404, "did you mean &#39;analyze_website&#39;?"),
        ("/runs?flow=analyse_website", 404, "did you mean &#39;analyze_website&#39;?"),
        ("/runs/0123abcd", 404, "there is no run 0123abcd"),
        ("/runs/zz", 400, "is not a run"),
        ("/runs/@last/steps/stor", 404, "did you mean &#39;store&#39;?"),
        ("/runs/@last/steps/store?task=9", 404, "it has 1, from #0"),
        ("/runs/@last/steps/store?task=x", 400, "a whole number"),
        ("/runs/@last?view=none", 400, "timeline, attempts, output, values"),
        ("/runs/@last?view=values&what=input&path=/7", 404, "no such input"),
        ("/runs?status=done", 400, "scheduled, blocked, started"),
        ("/runs?since=yesterday", 400, "a duration"),
        ("/runs?since=2026-99-01", 400, "a moment"),
        ("/runs?label=prod", 400, "NAME=VALUE"),
        ("/runs?after=1", 400, "the `next` of the page before"),
        ("/daemons/1", 404, "there is no daemon 1"),
        ("/explain/E999", 404, "the nearest are"),
    ],
)
def test_an_unknown_name_or_parameter_is_named_with_the_nearest(web, shop, path, status, says):
    shop.start("store_items", ["a"])

    answer = web.get(path)

    assert answer.status_code == status
    assert says in answer.text


def test_runs_come_a_page_at_a_time(web, shop):
    started = {str(shop.start("store_items", ["a"])) for _ in range(53)}

    first = web.get("/api/1/runs?flow=store_items").json()
    second = web.get(f"/api/1/runs?flow=store_items&after={first['next']}").json()

    seen = [run["run_id"] for page in (first, second) for run in page["runs"]]
    assert (len(first["runs"]), first["found"], second["next"]) == (50, 53, None)
    assert sorted(seen) == sorted(started)
    assert first["next"] in web.get("/runs?flow=store_items").text.replace("%3A", ":")


def test_a_large_value_comes_in_parts_and_can_be_kept_whole(web, shop):
    value = {"rows": [{"n": n} for n in range(300)], "a/b": {"~": "x" * 100_000}}
    done = shop.run_through(value)
    path = f"/runs/{done}?view=values&what=output&step=website"

    (whole,) = web.get(f"/api/1{path}").json()["values"]
    (rows,) = web.get(f"/api/1{path}&path=/rows&start=250").json()["values"]
    (text,) = web.get(f"/api/1{path}&path=/a~1b/~0").json()["values"]
    page, kept = web.get(path), web.get(f"/download/{done}?what=output&step=website")

    assert [member["name"] for member in whole["members"]] == ["a/b", "rows"]
    assert (rows["start"], rows["length"], len(rows["members"])) == (250, 300, 50)
    assert (text["type"], text["length"], text["whole"]) == ("string", 100_000, False)
    assert len(page.content) < 100_000
    assert "path=%2Fa~1b" in page.text
    assert kept.json() == value
    assert kept.headers["content-disposition"].startswith("attachment")
    assert kept.headers["content-security-policy"] == "sandbox"
    assert kept.headers["x-content-type-options"] == "nosniff"


def test_the_inbox_has_what_waits_for_somebody_whatever_else_waits(web, shop):
    for _ in range(3):
        shop.start("store_items", list(range(100)))
    for task in shop.claim_all("store_items").values():
        shop.suspend(task, kind="sleep", in_s=3600)
    shop.do("update pgflowd.waits set since = since - interval '1 h'")
    waiting = shop.start("send_email", {})
    (task,) = shop.claim_all("send_email").values()
    shop.suspend(task, kind="signal", name="paid")

    (found,) = web.get("/api/1/inbox").json()["tasks"]

    assert (found["run_id"], found["kind"], found["name"]) == (str(waiting), "signal", "paid")
    assert found["status"] == "waiting"
    assert f"pgflowd runs signal {str(waiting)[-8:]} paid" in web.get("/inbox").text


def test_lists_and_the_inbox_show_titles(web, shop):
    title = "update pgflow.flows set starts = %s where flow_slug = 'send_email'"
    shop.conn.execute(title, (Jsonb({"title": "{run.to} <b> https://u:hunter2@host/"}),))
    shop.start("send_email", {"to": "ACME"})
    (task,) = shop.claim_all("send_email").values()
    shop.suspend(task, kind="signal", name="paid")

    for path in ("/runs", "/inbox"):
        page = web.get(path).text
        assert "ACME &lt;b&gt; https://" in page and "hunter2" not in page, path
    (found,) = web.get("/api/1/inbox").json()["tasks"]
    assert found["title"].startswith("ACME <b>")


def test_no_page_and_no_file_has_a_secret_of_a_value(web, shop):
    value = {"password": "hunter2", "shown": 1, "deep": [{"Authorization": {"a": "hunter2"}}]}
    done = shop.run_through(value)
    many = shop.start("store_items", [value])
    values = f"/runs/{done}?view=values&what=output&step=website"

    for path in (
        "/", "/runs", f"/runs/{done}", f"/runs/{done}?view=values", values,
        f"{values}&path=/password", f"{values}&path=/deep/0",
        f"{values}&path=/deep/0/Authorization",
        f"/runs/{done}?view=timeline", f"/runs/{done}/steps/website", f"/runs/{many}/steps/store",
        f"/runs/{many}?view=values", "/signals", "/actions",
    ):  # fmt: skip
        for prefix in ("", "/api/1"):
            answer = web.get(prefix + ("/overview" if prefix and path == "/" else path))
            assert answer.status_code == 200, path
            assert "hunter2" not in answer.text, prefix + path
    kept = web.get(f"/download/{done}?what=output&step=website").json()

    assert kept == {"password": "***", "shown": 1, "deep": [{"Authorization": "***"}]}


@contextmanager
def web_of(dsn):
    with (
        serving(app(dsn, user=anybody)) as address,
        httpx.Client(base_url=address, headers=OF_OUR_PAGE, timeout=30) as client,
    ):
        yield client


def test_a_viewer_sees_every_page(database, words):
    known = {**words, "step": "summary", "code": "E210"}
    with database.connect() as conn, conn.transaction():
        conn.execute(schema.roles_sql().encode())
    with web_of(make_conninfo(database.dsn, options="-c role=pgflow_viewer")) as web:
        for page in PAGES:
            for view in ("", *page.views):
                path = page.path.format(**known) + (f"?view={view}" if view else "")
                answer = web.get(path)
                assert answer.status_code == 200, (path, answer.text[-1500:])


def test_without_a_usable_database_a_page_says_what_to_do(empty_database):
    with web_of(empty_database.dsn) as web:
        assert_unavailable(web, "E302", "pgflowd db migrate")
    with web_of("postgresql://nobody@127.0.0.1:1/none") as web:
        assert_unavailable(web, "E301", "")


def test_a_page_and_an_action_do_not_wait_long_for_a_lock(serve, database, shop):
    run = shop.start("send_email", {})
    address = serve(app(database.dsn, operator_url=database.dsn, user=anybody))
    with httpx.Client(base_url=address, headers=OF_OUR_PAGE, timeout=30) as web:
        with database.connect() as conn, conn.transaction():
            conn.execute("lock table pgflow.runs, pgflowd.runs")
            assert_unavailable(web, "E301", "doctor database")
            answer = web.post(f"/api/1/runs/{run}/cancel", json={})
            assert (answer.status_code, "E301" in answer.text) == (503, True)
        assert web.get("/runs").status_code == 200


def assert_unavailable(web, code, remedy):
    for path in ("/runs", "/api/1/runs"):
        answer = web.get(path)
        assert answer.status_code == 503
        assert code in answer.text
        assert remedy in answer.text


def test_the_look_returns_only_to_pages_of_ours(web):
    for back, place in (("/runs?since=7d", "/runs?since=7d"), ("//evil.example", "/"), ("", "/"),
                        ("/\\evil.example", "/"), ("https://evil.example", "/")):  # fmt: skip
        answer = web.post("/appearance", data={"back": back, "theme": "dark", "times": "local"})
        assert (answer.status_code, answer.headers["location"]) == (303, place)
    assert 'data-theme="dark" data-times="local"' in web.get("/").text
    assert web.post("/appearance", data={"theme": "日本", "times": "\0"}).status_code == 303
    assert "data-theme" not in web.get("/").text


def test_what_a_code_means_is_said_without_a_database(empty_database, serve):
    address = serve(app(empty_database.dsn, user=anybody))

    shown = httpx.get(f"{address}/explain/E302")
    document = httpx.get(f"{address}/api/1/explain/E302")

    assert httpx.get(f"{address}/runs").status_code == 503
    assert shown.status_code == 200 and "the schema is missing or older" in shown.text
    assert document.json()["code"] == "E302"


def test_markdown_brings_no_html_of_its_own_and_no_link_that_runs_something():
    hostile = """
<script>alert(1)</script> <b onclick="x">b</b> &lt;i&gt;

[a](javascript:alert(1)) [b](JaVaScRiPt:x) [c](data:text/html,x) [d](//evil.example)
[e](vbscript:x) [f](&#106;avascript:x) [g](java&#10;script:x) <javascript:x> [h](\x01javascript:x)
![i](http://evil.example/x.png) [j](https://example.org/) [k](E303.md#x) \u202e

```text"><script>
</pre><script>alert(1)</script>
```

| <script> |
|---|
| [x](javascript:x) |
"""
    made = of_markdown(hostile)
    found = re.findall(r"<(/?[a-z0-9]+)([^>]*)>", made)

    assert {tag.strip("/") for tag, _ in found} <= {
        "p", "a", "pre", "table", "thead", "tbody", "tr", "th", "td"
    }  # fmt: skip
    assert re.findall(r'href="([^"]*)"', made) == [
        "http://evil.example/x.png", "https://example.org/", "E303.md#x"
    ]  # fmt: skip
    assert all(" on" not in attributes and "src" not in attributes for _, attributes in found)
    assert "\u202e" not in made


@covers("row 105", "attack 20")
def test_a_run_that_waits_for_a_singleton_is_a_page_and_a_document(web, shop):
    start = "select run_id from pgflowd.start('send_email', '1', singleton_key => 'one')"
    first, second = shop.value(start), shop.value(start)

    shown = web.get(f"/api/1/runs/{second}")

    assert shown.status_code == 200, shown.text
    assert shown.json()["blocked_by"] == [str(first)]
    assert web.get(f"/runs/{second}").status_code == 200


@covers("attack 20")
def test_printed_text_that_no_worker_writes_is_shown_as_it_is(web, shop):
    words = web_states.full(shop)
    odd = ["", " ", "x", "1e400 stdout a", "nan cut", "9" * 5000 + " stdout b", "12.3  c", "1 é d"]
    for printed in (*odd, "\n".join(odd)):
        shop.do("update pgflowd.attempts set printed = %s, printed_lines = 3", printed)
        for address in (
            f"/runs/{words['run']}?view=output",
            f"/api/1/runs/{words['run']}?view=output",
        ):
            assert web.get(address).status_code == 200, (printed, address)


@covers("use 5")
def test_open_runs_of_older_versions_are_counted(web, shop):
    for _ in range(2):
        shop.start("store_items", ["a"])
    shape = {"steps": [{"slug": "z", "stepType": "single", "dependencies": []}]}
    shop.value("select pgflowd.deploy_version('store_items', %s)", Jsonb(shape))
    shop.do("select from pgflowd.start('store_items', '{}')")

    overview, page = web.get("/").text, web.get("/flows/store_items").text

    assert '<strong class="cyan">3</strong> <span>open runs</span>' in overview
    assert '>3 <span class="quiet">2 old</span>' in overview
    assert '>3 <span class="quiet">2 old</span>' in web.get("/flows").text
    assert "3 open runs" in page and "2 of them in" in page


@covers("use 6")
def test_a_list_says_apart_what_was_found_and_what_was_examined(web, shop):
    for _ in range(60):
        shop.start("send_email", {})

    page = re.sub(r"<[^>]+>", "", web.get("/runs?status=failed&text=nothing").text)

    assert "foundexamined" not in page
    assert "0 found; examined 60 runs" in page


def test_an_error_of_several_lines_is_told_on_one(serve):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        port = nobody.getsockname()[1]
    address = serve(app(f"postgresql://x@127.0.0.1:{port}/x?connect_timeout=2", user=anybody))

    answer = httpx.get(f"{address}/", headers=OF_OUR_PAGE)

    assert answer.status_code == 503
    assert "E301" in answer.text and "\\n" not in answer.text and "\\t" not in answer.text


@covers("attack 19")
def test_a_run_with_very_many_attempts_is_shown_in_parts(web, shop):
    run = shop.start("send_email", {})
    shop.claim_all("send_email")
    shop.do(
        "insert into pgflowd.attempts (run_id, step_slug, task_index, attempt, flow_slug,"
        " worker_id, started_at, lease_until, ended_at, outcome)"
        " select run_id, step_slug, task_index, 1 + nr, flow_slug, worker_id, at, at, at, 'failed'"
        " from pgflowd.attempts, generate_series(1, 6000) as nr,"
        " lateral (select started_at + nr * interval '1 ms' as at) as moment"
    )
    shop.do("update pgflow.step_tasks set attempts_count = 6001")

    timeline, attempts = (web.get(f"/runs/{run}?view={view}") for view in ("timeline", "attempts"))

    assert timeline.text.count("<tr>") < 600 and "Older →" in timeline.text
    assert "too many attempts" in attempts.text and "runs show --attempts" in attempts.text
    assert len(attempts.content) < 100_000
    newest = web.get(f"/api/1/runs/{run}?view=timeline").json()
    before = quote(newest["before"])
    older = web.get(f"/api/1/runs/{run}?view=timeline&before={before}").json()
    assert older["events"][-1]["at"] < newest["before"] == newest["events"][0]["at"]
    (link,) = re.findall(r'rel="next" href="([^"]+)"', timeline.text)
    assert web.get(html.unescape(link)).text.count("<tr>") > 400
    assert web.get(f"/runs/{run}?view=timeline&before=1d").status_code == 400
