"""Pauses of runs and flows, on the command line."""

from __future__ import annotations

import re


def test_a_paused_run_says_since_when_and_why_and_goes_on(here, shop):
    run = shop.start("send_email")
    assert f"run {run} paused" in here("runs", "pause", "@last", "--reason", "no stamps").out

    shown = here("runs", "show", "@last").out
    assert re.search(rf"run {run} +send_email +\S paused", shown)
    assert re.search(r"paused +\d+s ago by postgres: no stamps; +`pgflowd runs resume", shown)
    assert re.search(r"send_email +\S paused", here("runs", "list", "--status", "paused").out)
    assert "the resume of its run" in here("tasks", "list", "--status", "paused").out
    (found,) = here("runs", "resume", "@last", "--json").json["runs"]
    assert (found["status"], found["paused_at"], found["pause_reason"]) == ("started", None, None)
    assert shop.claim_all("send_email")


def test_a_sleep_of_a_paused_run_ends_with_the_resume(here, shop):
    run = shop.start("send_email")
    (task,) = shop.claim_all("send_email").values()
    shop.suspend(task, kind="sleep", in_s=3600)
    here("runs", "pause", "@last")

    assert "waits for the resume of its run" in here("runs", "show", "@last").out
    waited = here("runs", "wait", str(run), "--timeout", "0s")
    assert (waited.code, "it is paused" in waited.err) == (5, True)
    assert f"pgflowd runs resume {run}" in waited.err


def test_a_run_that_has_ended_is_not_paused(here, shop):
    run = shop.run_through()
    refused = here("runs", "pause", str(run))
    assert (refused.code, "cannot be paused: it is completed" in refused.err) == (6, True)
    assert here("runs", "resume", str(run)).code == 0
    here("runs", "start", "send_email", "--delay", "1h")
    refused = here("runs", "pause", "@last")
    assert "it is scheduled; `pgflowd runs reschedule` postpones" in refused.err


def test_a_paused_flow_is_marked_in_the_list(here, shop):
    assert "flow send_email paused" in here("flows", "pause", "send_email", "--reason", "rain").out
    assert "is paused already" in here("flows", "pause", "send_email").out

    assert re.search(r"send_email.* paused", here("flows", "list").out)
    assert re.search(r"paused \d+s ago by postgres: rain", here("flows", "show", "send_email").out)
    shown = here("flows", "show", "send_email", "--json").json
    assert (shown["paused_by"], shown["pause_reason"]) == ("postgres", "rain")
    shop.start("send_email")
    assert shop.claim_all("send_email") == {}
    ended = here("runs", "start", "send_email", "--wait", "--timeout", "0s")
    assert "flow send_email is paused; `pgflowd flows resume send_email`" in ended.err
    assert "flow send_email is paused" in here("runs", "show", "@last").err
    assert "flow send_email is paused" in here("tasks", "list").err
    assert here("flows", "resume", "send_email", "--json").json["changed"] is True
    assert shop.claim_all("send_email")
