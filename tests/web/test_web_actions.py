"""What people and programs do in the dashboard: the same as commands do, with their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import UUID

import httpx
import pytest
from psycopg.conninfo import make_conninfo
from support.covers import covers
from web.conftest import anybody

from pgflowd import Flow
from pgflowd.db import schema
from pgflowd.db.flows import deploy as deploy_flow
from pgflowd.web import User, app

PAGE = {"Sec-Fetch-Site": "same-origin"}
booking = Flow("book_trip")


@booking.step
def book(run):
    return 1


@booking.undo(book)
def unbook(book):
    return None


def deploy(shop) -> None:
    with shop.database.connect() as conn:
        for flow in (booking, booking.undo_flow):
            deploy_flow(conn, flow.slug, flow.shape())


@pytest.fixture
def as_user(database, serve) -> Iterator[Callable[..., httpx.Client]]:
    """A client of the dashboard, as somebody who may act or only look, with the least rights."""
    with database.connect() as conn, conn.transaction():
        conn.execute(schema.roles_sql().encode())
    with ExitStack() as stack:

        def give(name: str = "jane", *, may_act: bool = True, is_open: bool = True) -> httpx.Client:
            async def user(scope: object) -> User:
                return User(name, may_act=may_act)

            urls = [
                make_conninfo(database.dsn, options=f"-c role={role}")
                for role in ("pgflow_viewer", "pgflow_operator")
            ]
            mounted = app(urls[0], operator_url=urls[1] if is_open else "", user=user)
            address = serve(mounted)
            return stack.enter_context(httpx.Client(base_url=address, headers=PAGE))

        yield give


@pytest.fixture
def jane(as_user) -> httpx.Client:
    return as_user()


def actions_of(shop) -> list[tuple[str, str, str | None]]:
    return shop.rows("select action, actor, reason from pgflowd.actions order by action_id")


def status_of(shop, run: UUID) -> str:
    ((status,),) = shop.rows("select status from pgflowd.run_status where run_id = %s", run)
    return status


def test_pages_show_the_role_of_the_session_beside_who_somebody_says_to_be(as_user, shop):
    run = shop.start("send_email", {})
    shop.do("select pgflowd.signal(%s, 'paid', actor => 'ada')", run)
    jane = as_user()

    for page in ("/actions", "/signals", "/inbox", f"/runs/{run}?view=timeline", f"/runs/{run}"):
        assert "ada (role postgres)" in jane.get(page).text, page
    shop.do("select pgflowd.cancel(%s, '', '')", run)
    assert "<td>postgres</td>" in jane.get("/actions").text  # which says who it was


def failed(shop) -> UUID:
    """A run whose only task has failed for good."""
    shop.do("update pgflow.flows set opt_max_attempts = 1 where flow_slug = 'send_email'")
    run = shop.start("send_email", {})
    (task,) = shop.claim("send_email", shop.worker("send_email"), 1)
    shop.fail(task, "no such address")
    return run


def test_a_person_starts_a_run_once_and_is_named(jane, shop):
    form = {"run_id": "0192f0c1-2345-7abc-8def-0123456789ab", "input": '["a", "b"]'}

    first, second = (jane.post("/flows/store_items/start", data=form) for _ in range(2))

    assert [first.status_code, second.status_code] == [303, 409]
    assert first.headers["location"] == f"/runs/{form['run_id']}"
    assert shop.rows("select created_by from pgflowd.runs") == [("jane (web)",)]


def test_a_person_pauses_resumes_and_cancels(jane, shop):
    run = shop.start("store_items", ["a"])

    for verb in ("pause", "resume", "cancel"):
        answer = jane.post(f"/runs/{run}/{verb}", data={"reason": f"to {verb}"})
        assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}"), verb

    assert actions_of(shop) == [
        ("pause", "jane (web)", "to pause"),
        ("resume", "jane (web)", "to resume"),
        ("cancel", "jane (web)", "to cancel"),
    ]
    assert status_of(shop, run) == "cancelled"


@covers("E411")
def test_a_run_that_failed_is_retried_from_a_page_that_shows_its_failure(jane, shop):
    run = failed(shop)
    ((token,),) = shop.rows("select max(token) from pgflowd.attempts")

    old = jane.post(f"/runs/{run}/retry", data={"shown": f"failed.{token - 1}"})
    new = jane.post(f"/runs/{run}/retry", data={"shown": f"failed.{token}"})

    assert (old.status_code, new.status_code) == (409, 303)
    assert "E411" in old.text and f"attempt {token} " in old.text
    assert status_of(shop, run) == "started"


def test_a_page_that_is_old_changes_nothing(jane, shop):
    run = shop.start("store_items", ["a"])

    answer = jane.post(f"/api/1/runs/{run}/cancel", json={"shown": "failed"})

    assert answer.status_code == 409
    (problem,) = answer.json()["errors"]
    assert "was failed when the page was made, and is started now" in problem["text"]
    assert status_of(shop, run) == "started"


def test_a_program_gets_what_the_command_prints(jane, shop):
    run = shop.start("store_items", ["a"])

    answer = jane.post(f"/api/1/runs/{run}/cancel", json={"reason": "wrong"})

    assert answer.json()["cancel_reason"] == "wrong"
    assert answer.json()["schema_version"] == 1


def test_a_run_is_deleted_by_who_types_its_last_digits(jane, shop):
    run = shop.start("store_items", ["a"])
    jane.post(f"/runs/{run}/cancel")
    shop.rows("select pgflowd.process_due()")

    refused = [jane.post(f"/runs/{run}/delete", data={"digits": text}) for text in ("", "123")]
    done = jane.post(f"/runs/{run}/delete", data={"digits": str(run)[-8:]})

    assert [answer.status_code for answer in refused] == [400, 400]
    assert (done.status_code, done.headers["location"]) == (303, "/runs")
    assert shop.rows("select count(*) from pgflow.runs") == [(0,)]


def test_many_runs_are_counted_first_and_then_changed(jane, shop):
    runs = [shop.start("store_items", ["a"]) for _ in range(51)]
    ticked = {"run": [str(run) for run in runs]}

    asks = jane.post("/runs/many/cancel", data=ticked)
    ids = ",".join(map(str, runs))
    too_soon = jane.post("/runs/many/cancel", data={"runs": ids, "sure": "on", "count": "50"})
    before = shop.rows("select count(*) from pgflowd.actions")
    done = jane.post(
        "/runs/many/cancel", data={"runs": ids, "sure": "on", "count": "51", "reason": "storm"}
    )
    again = jane.post("/api/1/runs/many/cancel", json={"runs": [str(run) for run in runs[:2]]})

    assert "Cancel 51 runs?" in asks.text and "Type 51" in asks.text
    assert 'name="reason"' in asks.text and 'name="undo"' in asks.text  # as the form for one
    assert 'name="undo" checked' not in asks.text
    assert "data-answer" in asks.text  # its address has no live updates
    assert "type the number of runs" in too_soon.text and before == [(0,)]
    assert "51 runs done" in done.text
    assert actions_of(shop) == [("cancel", "jane (web)", "storm")] * 51
    assert again.json()["already"] == sorted(str(run) for run in runs[:2])


def test_what_was_given_for_many_runs_is_kept_for_what_is_left(jane, shop, monkeypatch):
    deploy(shop)
    runs = [str(shop.start("book_trip", {})) for _ in range(51)]
    given = {"runs": ",".join(runs), "sure": "on", "reason": "storm", "undo": "on"}

    too_soon = jane.post("/runs/many/cancel", data={**given, "count": "50"})
    monkeypatch.setattr("pgflowd.web.actions._TIME_S", 0)
    left = jane.post("/runs/many/cancel", data={**given, "count": "51"})

    assert 'name="undo" checked' in too_soon.text and 'name="reason" value="storm"' in too_soon.text
    form = left.text.partition('class="ask"')[2].partition("</form>")[0]
    assert "51 runs are left" in form
    assert 'name="undo" value="on"' in form and 'name="reason" value="storm"' in form


def test_of_many_runs_those_that_are_cancelled_are_undone_as_one_is(jane, shop):
    deploy(shop)
    runs = [str(shop.start("book_trip", {})) for _ in range(2)]
    for run in runs:
        shop.claim("book_trip", shop.worker("book_trip", shop.worker_id), 1)
        shop.do("select pgflowd.cancel(%s, 'x', 'ada')", run)

    jane.post(f"/runs/{runs[0]}/cancel", data={"undo": "on"})
    plain = jane.post("/runs/many/cancel", data={"runs": runs[1], "sure": "on"})
    before = dict(shop.rows("select run_id::text, undo_state from pgflowd.runs"))
    jane.post("/runs/many/cancel", data={"runs": runs[1], "sure": "on", "undo": "on"})

    assert "1 run: nothing to do" in plain.text and before.get(runs[1]) is None
    after = dict(shop.rows("select run_id::text, undo_state from pgflowd.runs"))
    assert after[runs[0]] == after[runs[1]] == "wanted"


@covers("friction 7")
def test_a_retry_of_many_runs_is_asked_once_without_a_number(jane, shop):
    runs = [str(shop.start("send_email", {})) for _ in range(51)]

    asks = jane.post("/runs/many/pause", data={"run": runs})
    done = jane.post("/runs/many/pause", data={"runs": ",".join(runs), "sure": "on"})

    assert "Pause 51 runs?" in asks.text and "Type 51" not in asks.text
    assert "51 runs done" in done.text
    assert "Type 51" not in jane.post("/runs/many/retry", data={"run": runs}).text


def test_all_runs_that_a_list_finds_are_chosen_once(jane, shop):
    runs = [shop.start("store_items", ["a"]) for _ in range(3)]
    other = shop.start("send_email", {})

    asks = jane.post(
        "/runs/many/pause", data={"all": "on", "filter": "?flow=store_items&status=started"}
    )
    wrong = jane.post("/runs/many/pause", data={"all": "on", "filter": "?status=strated"})

    assert "Pause 3 runs?" in asks.text and all(str(run) in asks.text for run in runs)
    assert str(other) not in asks.text
    assert wrong.status_code == 400


def test_one_run_that_refuses_keeps_none_of_the_others(jane, shop):
    bad, good = failed(shop), shop.start("store_items", ["a"])

    answer = jane.post("/api/1/runs/many/pause", json={"runs": [str(bad), str(good)]})

    page = jane.post("/runs/many/pause", data={"runs": f"{bad},{good}", "sure": "on"})
    assert page.status_code == 200 and "1 run refused" in page.text and "E411" in page.text
    assert answer.json()["done"] == [str(good)]
    ((code, where),) = [(one["code"], one["run_id"]) for one in answer.json()["refused"]]
    assert (code, where) == ("E411", str(bad))


def test_a_person_does_a_task_by_hand(jane, shop):
    run = shop.start("send_email", {"to": "x"})

    claimed = jane.post("/api/1/flows/send_email/claim", json={"hours": 1}).json()["task"]
    path = f"/runs/{run}/steps/{claimed['step']}/tasks/0/complete"
    done = jane.post(path, data={"token": claimed["token"], "output": '{"sent": true}'})

    assert done.status_code == 303
    assert status_of(shop, run) == "completed"
    assert [actor for _, actor, _ in actions_of(shop)] == ["jane (web)", "jane (web)"]


def test_a_person_sends_a_signal(jane, shop):
    run = shop.start("send_email", {})

    by_form = jane.post(f"/runs/{run}/signal", data={"name": "paid", "payload": '{"eur": 7}'})
    by_api = jane.post(f"/api/1/runs/{run}/signal", json={"name": "paid", "payload": 8})

    assert (by_form.status_code, by_form.headers["location"]) == (303, f"/runs/{run}")
    assert by_api.json()["run_id"] == str(run)
    sent = shop.rows("select name, payload, sent_by from pgflowd.signals order by signal_id")
    assert sent == [("paid", {"eur": 7}, "jane (web)"), ("paid", 8, "jane (web)")]


def test_a_flow_is_paused_and_resumed(jane, shop):
    for verb in ("pause", "resume"):
        answer = jane.post(f"/flows/send_email/{verb}", data={"reason": "mail is down"})
        assert answer.headers["location"] == "/flows/send_email"

    assert [action for action, _, _ in actions_of(shop)] == ["pause_flow", "resume_flow"]


@pytest.mark.parametrize(
    ("path", "fields", "status", "text"),
    [
        ("/runs/{run}/cancel", {"reson": "x"}, 400, "no field 'reson'"),
        ("/runs/{run}/signal", {"payload": "1"}, 400, "'name' is missing"),
        ("/runs/{run}/signal", {"name": "a", "payload": "{"}, 400, "not JSON"),
        ("/runs/{run}/signal", {"name": "a", "payload": "NaN"}, 400, "not JSON"),
        ("/runs/01234567-89ab-7def-8123-456789abcdef/cancel", {}, 404, "there is no run"),
        ("/runs/{run}/steps/store/tasks/x/wake", {}, 400, "not the number of a task"),
        ("/flows/send_emial/pause", {}, 404, "did you mean 'send_email'?"),
        ("/flows/store_items/start", {"input": "7"}, 400, "E416"),
        ("/runs/many/explode", {"run": "x"}, 404, "cannot be done to many runs"),
        ("/runs/many/cancel", {"run": "x"}, 400, "not ids of runs"),
        ("/runs/many/cancel", {}, 400, "no run is chosen"),
        ("/runs/{run}/cancel", {"reason": "a\0b"}, 400, "no text can hold"),
        ("/runs/{run}/signal", {"name": "a", "payload": "[" * 20_000}, 400, "nested too deeply"),
        ("/flows/send_email/claim", {"hours": "-5"}, 400, "from 1 to 720"),
        ("/flows/send_email/claim", {"hours": "9" * 5000}, 400, "from 1 to 720"),
        ("/runs/{run}/steps/store/tasks/0/release", {"token": "9" * 30}, 400, "whole number"),
        ("/daemons/workers/x/restart", {}, 400, "not the id of a worker"),
    ],
)
def test_what_cannot_be_done_is_said(jane, shop, path, fields, status, text):
    run = shop.start("store_items", ["a"])

    answer = jane.post(path.format(run=run), data=fields)

    assert answer.status_code == status
    assert text in answer.text.replace("&#39;", "'")
    assert actions_of(shop) == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/runs/{run}/cancel", b'{"reason": "\\ud800"}'),
        ("/runs/{run}/steps/store/tasks/0/release", b'{"token": 1e999}'),
        ("/flows/send_email/claim", b'{"hours": 1e308}'),
        ("/flows/send_email/claim", b"[" * 20_000),
    ],
)
def test_a_body_of_a_program_that_cannot_be_used_is_said(jane, shop, path, body):
    run = shop.start("store_items", ["a"])

    answer = jane.post(
        f"/api/1{path.format(run=run)}", content=body, headers={"Content-Type": "application/json"}
    )

    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, "E511")


def test_no_answer_and_no_form_has_a_value_that_is_hidden(serve, database, shop):
    mounted = app(database.dsn, operator_url=database.dsn, user=anybody, redact=["password"])
    value = {"password": "geheim"}
    shop.start("send_email", value)
    with httpx.Client(base_url=serve(mounted), headers=PAGE, timeout=30) as client:
        form = client.get("/flows/send_email/start")
        start = client.post("/api/1/flows/send_email/start", json={"input": value})
        run = start.json()["run_id"]
        others = [
            client.post(f"/api/1/runs/{run}/pause", json={}),
            client.post(f"/api/1/runs/{run}/resume", json={}),
            client.post("/api/1/flows/send_email/claim", json={}),
            client.post(f"/api/1/runs/{run}/cancel", json={}),
        ]

    assert [answer.status_code for answer in (form, start, *others)] == [200] * 6
    assert not any("geheim" in answer.text for answer in (form, start, *others))
    assert start.json()["input"] == {"password": "***"}
    assert "***" not in form.text and "not shown" in form.text  # nobody sends it back so


@pytest.mark.parametrize("kind", ["looks", "closed"])
def test_who_may_only_look_changes_nothing(as_user, shop, kind):
    run = shop.start("store_items", ["a"])
    client = as_user(may_act=kind == "closed", is_open=kind == "looks")

    answer = client.post(f"/api/1/runs/{run}/cancel", json={})

    assert answer.status_code == 403
    assert [problem["code"] for problem in answer.json()["errors"]] == ["E305"]
    assert actions_of(shop) == []
