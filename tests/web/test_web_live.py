"""Live updates without a browser: streams, polling, their limits, and resuming."""

from __future__ import annotations

from support.event_lines import events_of


def test_a_stream_sends_all_fragments_and_then_those_that_change(web, shop):
    run = shop.start("store_items", ["a"])

    with web.stream("GET", "/live/runs") as answer:
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["x-accel-buffering"] == "no"
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")
        events = events_of(answer)
        assert next(events).kind == "heartbeat"
        first = next(each for each in events if each.data.startswith(f"run-{run}\n"))
        for task in shop.claim_all("store_items").values():
            shop.complete(task, 1)
        second = next(events)

    assert "running" in first.data
    assert second.data.startswith(f"run-{run}\n")
    assert "completed" in second.data
    assert second.id.split(".")[0] == first.id.split(".")[0]
