"""The pictures on the pages of a run, and that live updates replace their parts."""

from __future__ import annotations

from support.event_lines import events_of


def test_the_page_of_a_run_has_its_graph_and_its_timeline(web, shop):
    run = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    shop.fail(shop.claim_all()["summary#0"], "no answer")

    graph, timeline = web.get(f"/runs/{run}").text, web.get(f"/runs/{run}?view=timeline").text

    assert 'aria-label="website, completed"' in graph
    assert f'href="/runs/{run}/steps/save_to_db" aria-label="save_to_db, created"' in graph
    assert '<li id="bar-website" class="status-completed green" data-fragment>' in timeline
    assert "(1 failed)" in timeline


def test_the_pages_of_a_map_and_of_a_flow_show_where_tasks_failed(web, shop):
    run = shop.start("store_items", list(range(300)))
    tasks = shop.claim_all("store_items")
    for index in range(3):
        shop.complete(tasks[f"store#{index}"], 1)
    shop.fail(tasks["store#3"], "no", retry=False)

    strip, grid = web.get(f"/runs/{run}/steps/store").text, web.get("/flows/store_items").text

    assert 'aria-label="tasks 2\N{EN DASH}3: 1 completed, 1 failed"' in strip
    assert f'href="/runs/{run}/steps/store?after=1"' in strip
    assert "store: failed" in grid


def test_a_live_page_gets_the_nodes_of_its_graph_that_change(web, shop):
    run = shop.start()
    task = shop.claim_all()["website#0"]

    with web.stream("GET", f"/live/runs/{run}", timeout=30) as answer:
        events = events_of(answer)
        next(each for each in events if is_node(each.data) and "website, running" in each.data)
        shop.complete(task, 1)
        next(each for each in events if is_node(each.data) and "website, completed" in each.data)


def is_node(fragment: str) -> bool:
    return fragment.startswith("node-website\n<g ")
