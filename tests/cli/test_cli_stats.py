"""`pgflowd flows stats`, for people and for programs."""

from __future__ import annotations

import json


def test_it_tells_what_is_to_be_done_and_what_was(here, shop):
    steps = [
        {"step": "website", "completed": 3, "failed": 1, "ran": [0] * 6 + [4] + [0] * 8},
        {"step": "", "completed": 3},
    ]
    add = "select pgflowd.add_minute('analyze_website', %s)"
    shop.conn.execute(add, (json.dumps(steps),))
    shop.start()

    (flow,) = here("flows", "stats", "analyze_website", "--json").json["flows"]

    assert (flow["ready"], flow["running"], flow["waits"], flow["since_s"]) == (1, 0, {}, 3600.0)
    assert flow["runs"] == {
        "completed": 3, "failed": 0, "per_minute": 0.05, "failure_rate": 0.0,
    }  # fmt: skip
    assert flow["buckets"] == [{"ok": 0, "failed": 0}] * 11 + [{"ok": 3, "failed": 0}]
    (website,) = flow["steps"]
    assert (website["completed"], website["failure_rate"]) == (3, 0.25)
    assert 0.25 < website["ran_p50_s"] < website["ran_p95_s"] <= 0.5
    shown = here("flows", "stats", "--since", "30m").out
    assert shown.startswith("analyze_website   1 ready")
    assert "website      4     0.133   25.0%" in shown
    assert "send_email   0 ready   0 running\n nothing ended within 30m" in shown


def test_a_flow_that_is_not_there_is_named(here, shop):
    ended = here("flows", "stats", "analyse_website")
    assert (ended.code, "analyze_website" in ended.err) == (4, True)
    assert here("flows", "stats", "--since", "0s").code == 2
