"""Live pages in a real browser: what changes, and what stays as its user has it."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest
from playwright.sync_api import expect
from support.covers import covers
from support.dashboard import running
from support.database import key

from pgflowd.db.query import execute
from pgflowd.db.runs import publish_output
from pgflowd.testing.until import until

STOPS = """[...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
  .filter((each) => each.checkVisibility({ visibilityProperty: true }) && each.type !== "hidden")"""
LIVE, POLLING = "live", "live, every 5 s"
SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const { hadRecentInput, sources } of list.getEntries()) {
    const moved = hadRecentInput ? [] : sources;
    window.shifts.push(...moved.map((each) => [each.node?.textContent, each.currentRect.toJSON()]));
  }
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Let documents be read more often: a test on a busy machine would wait long for changes."""
    monkeypatch.setattr("pgflowd.web.watcher.OPEN_S", 0.3)
    monkeypatch.setattr("pgflowd.web.watcher.SHARE", 1)


@pytest.fixture
def served(database, shop):
    with running(database.dsn, auth="none") as made:
        yield made


def is_live(page, how=LIVE):
    expect(page.locator("#live")).to_have_text(how)
    return page


def status(page, step):
    return page.locator(f"#step-{step} .status")


def hide(page, is_hidden):
    page.evaluate(
        """(is_hidden) => {
          Object.defineProperty(document, "hidden", { configurable: true, get: () => is_hidden });
          document.dispatchEvent(new Event("visibilitychange"));
        }""",
        is_hidden,
    )


def test_every_state_of_a_run_appears_and_what_its_user_has_stays(served, shop, tabs):
    """Focus, a selection, open details and scrolling survive; the end is announced once."""
    run = shop.start("analyze_website", {"url": "https://example.com/"})
    page = tabs.new_page()
    page.goto(f"{served.url}/runs/{run}")
    is_live(page)
    expect(status(page, "website")).to_contain_text("running")
    expect(status(page, "save_to_db")).to_contain_text("created")
    link = page.locator("#step-website a").first
    link.focus()
    (website,) = shop.claim_all().values()
    shop.fail(website, "TimeoutError: no answer")
    expect(page.locator("#run-troubles")).to_contain_text("TimeoutError: no answer")
    shop.do("select pgflowd.retry(%s)", run) if shop.status(run) == "failed" else None
    shop.do(
        "update pgflow.step_tasks set queued_at = now() - interval '1 h' where run_id = %s", run
    )
    shop.do("update pgmq.q_analyze_website set vt = now()")
    (website,) = shop.claim_all().values()
    shop.complete(website, {"text": "x"})
    expect(status(page, "website")).to_contain_text("completed")
    expect(status(page, "sentiment")).to_contain_text("running")
    expect(link).to_be_focused()
    page.locator("#step-sentiment th").select_text()
    for task in shop.claim_all().values():
        shop.complete(task, 1)
    expect(status(page, "summary")).to_contain_text("completed")
    expect(status(page, "sentiment")).to_contain_text("running")  # it waits
    page.evaluate("() => getSelection().removeAllRanges()")
    expect(status(page, "sentiment")).to_contain_text("completed")
    for task in shop.claim_all().values():
        shop.complete(task, 1)
    expect(page.locator("#run-head .status")).to_contain_text("completed")
    expect(page.get_by_role("status")).to_have_text(f"run {str(run)[-8:]} completed")


def test_new_rows_wait_and_rows_change_in_place_without_moving_anything(served, shop, tabs):
    runs = [shop.start("store_items", ["a"]) for _ in range(20)]
    page = tabs.new_page()
    page.add_init_script(SHIFTS)
    page.goto(f"{served.url}/runs?status=started")
    is_live(page)
    page.locator("tbody tr").nth(7).locator("a").first.focus()
    for task in shop.claim("store_items", shop.worker("store_items", shop.worker_id), 100):
        shop.complete(key(task), 1)
    for run in runs:
        expect(page.locator(f"#run-{run} .status")).to_contain_text("completed")
    new = shop.start("store_items", ["b"])
    expect(page.locator("#new-rows")).to_have_text("↑ 1 new")
    expect(page.locator("tbody tr")).to_have_count(20)
    expect(page.locator("tbody tr").nth(7).locator("a").first).to_be_focused()
    assert page.evaluate("() => window.shifts") == []
    page.keyboard.press("n")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(page.locator(f"#run-{new} .status")).to_contain_text("running")
    expect(page.locator("#new-rows")).to_be_hidden()


def test_keys_reach_pages_and_rows_but_not_while_somebody_writes(served, shop, tabs):
    runs = [shop.start("store_items", ["a"]) for _ in range(3)]
    page = is_live_page(tabs, f"{served.url}/runs")
    rows = page.locator("tbody tr")

    for letter, row in (("j", 0), ("j", 1), ("j", 2), ("j", 2), ("k", 1)):
        page.keyboard.press(letter)
        expect(rows.nth(row).locator("a").first).to_be_focused()
    page.keyboard.press("/")
    search = page.get_by_role("searchbox")
    expect(search).to_be_focused()
    page.keyboard.type("jp?")
    expect(search).to_have_value("jp?")
    search.clear()
    search.blur()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_be_visible()
    expect(dialog).to_contain_text("show new rows")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("p")
    is_live(page, "paused")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{served.url}/runs/{runs[0]}")
    page.keyboard.press("g")
    page.keyboard.press("o")
    expect(page).to_have_url(f"{served.url}/")


def is_live_page(tabs, url):
    page = tabs.new_page()
    page.goto(url)
    return is_live(page)


def test_a_paused_or_hidden_tab_has_no_stream(served, shop, tabs):
    run = shop.start()
    page = is_live_page(tabs, f"{served.url}/runs/{run}")
    live = served.dashboard.live
    until(lambda: len(live.streams) == 1)

    hide(page, True)
    until(lambda: len(live.streams) == 0, within_s=20)
    (website,) = shop.claim_all().values()
    shop.complete(website, {"a": 1})
    hide(page, False)
    expect(status(page, "website")).to_contain_text("completed")
    page.get_by_role("button", name="live").click()
    is_live(page, "paused")
    until(lambda: len(live.streams) == 0, within_s=20)
    for task in shop.claim_all().values():
        shop.complete(task, 1)
    page.get_by_role("button", name="paused").click()
    expect(status(page, "sentiment")).to_contain_text("completed")


def test_nine_tabs_are_live_with_four_streams(served, shop, tabs):
    run = shop.start()
    pages = [tabs.new_page() for _ in range(9)]
    for page in pages:
        page.goto(f"{served.url}/runs/{run}")
    for page in pages:
        expect(page.locator("#live")).to_contain_text("live")
    (website,) = shop.claim_all().values()
    shop.complete(website, {"a": 1})
    for page in pages:
        expect(status(page, "website")).to_contain_text("completed")

    how = sorted(page.locator("#live").text_content() for page in pages)
    assert how == [LIVE] * 4 + [POLLING] * 5
    assert len(served.dashboard.live.streams) == 4


def test_a_page_is_live_again_after_a_restart_of_the_server_and_of_the_database(
    database, shop, proxy, tabs
):
    run = shop.start()
    with running(proxy.dsn, auth="none") as served:
        page = is_live_page(tabs, f"{served.url}/runs/{run}")
        expect(status(page, "website")).to_contain_text("running")
        proxy.do("refuse")
        trouble = page.locator("#trouble")
        expect(trouble).to_contain_text("E301")
        expect(trouble).to_contain_text("ago")
        expect(status(page, "website")).to_contain_text("running")
        (website,) = shop.claim_all().values()
        shop.complete(website, {"a": 1})
        proxy.do("pass")
        expect(trouble).to_be_empty()
        expect(status(page, "website")).to_contain_text("completed")
    with running(proxy.dsn, auth="none", port=served.place):
        for task in shop.claim_all().values():
            shop.complete(task, 1)
        expect(status(page, "sentiment")).to_contain_text("completed")
        expect(page.locator("#live")).to_contain_text("live")


def test_a_map_of_a_run_grows_without_moving_anything(served, shop, tabs):
    run = shop.start("store_items", list(range(20)))
    page = tabs.new_page()
    page.add_init_script(SHIFTS)
    page.goto(f"{served.url}/runs/{run}")
    is_live(page)
    tasks = shop.claim("store_items", shop.worker("store_items", shop.worker_id), 100)
    for done, task in enumerate(tasks[:-1], 1):
        shop.complete(key(task), 1)
        expect(page.locator("#step-store")).to_contain_text(f"{done} of 20")

    assert len(tasks) == 20
    assert page.evaluate("() => window.shifts") == []


def test_what_somebody_writes_and_opens_is_not_replaced(database, shop, tabs):
    """An action is being filled in while the run goes on; the list keeps what is chosen."""
    run = shop.start()
    with running(database.dsn, operator_url=database.dsn) as served:
        page = tabs.new_page()
        page.goto(served.link)
        page.goto(f"{served.url}/runs/{run}")
        is_live(page)
        page.get_by_text("Cancel…").click()
        form = page.locator("#run-actions form[action$=cancel]")
        form.get_by_label("Why").fill("it takes too long")
        page.locator("h1").click()
        for _ in range(3):
            for task in shop.claim_all().values():
                shop.complete(task, 1)
        expect(page.locator("#run-head .status")).to_contain_text("completed")
        expect(form.get_by_label("Why")).to_have_value("it takes too long")
        other = shop.start("send_email")
        page.goto(f"{served.url}/runs")
        is_live(page)
        page.keyboard.press("j")
        page.keyboard.press("x")
        box = page.locator(f"#run-{other} input")
        expect(box).to_be_checked()
        expect(page.locator("[data-selected]")).to_have_text("1")
        shop.complete(next(iter(shop.claim_all("send_email").values())), 1)
        expect(page.locator(f"#run-{other} .status")).to_contain_text("completed")
        expect(box).to_be_checked()
        page.get_by_label("Choose all rows").check()
        expect(page.locator("[data-selected]")).to_have_text("2")


def test_output_comes_while_somebody_looks(served, shop, tabs):
    run = shop.start()
    page = is_live_page(tabs, f"{served.url}/runs/{run}?view=output")
    until(lambda: shop.value("select count(*) from pgflowd.followers where with_output") == 1)
    line = {"event_type": "task:output", "text": "<b>hello</b>", "step_slug": "website"}
    execute(shop.conn, publish_output([(str(run), json.dumps(line))]))

    expect(page.locator("#live-output li")).to_contain_text("<b>hello</b>")


def test_the_keyboard_reaches_all_that_can_be_used(served, shop, tabs):
    run = shop.run_through()
    page = is_live_page(tabs, f"{served.url}/runs/{run}")
    reached = set()
    for _ in range(200):
        page.keyboard.press("Tab")
        at = page.evaluate(f"() => {STOPS}.indexOf(document.activeElement)")
        if at in reached:
            break
        reached.add(at)

    assert reached >= set(range(page.evaluate(f"() => {STOPS}.length")))


def test_the_script_has_at_most_300_lines():
    text = (files("pgflowd.web") / "assets" / "pgflowd.js").read_text()

    assert len(text.splitlines()) <= 300
    assert text.count("innerHTML") == text.count("createPolicy") == 1


@covers("use 6")
def test_the_dot_says_that_the_database_is_away(database, shop, proxy, tabs):
    shop.start()
    with running(proxy.dsn, auth="none") as served:
        page = is_live_page(tabs, f"{served.url}/runs")
        proxy.do("refuse")
        expect(page.locator("#live")).to_have_text("no database")
        expect(page.locator("#live")).to_have_attribute("data-state", "away")
        proxy.do("pass")
        is_live(page)
