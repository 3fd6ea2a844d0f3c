"""Schedules on the command line: words, ticks, what is refused, and what `check` says of them."""

from __future__ import annotations

import re

from support.shop import MODULE

CODE = (
    MODULE
    + """
from pgflowd import Schedule
beat = Flow("beat", cron="0 3 * * *", timezone="Europe/Berlin",
            schedules=[Schedule("@every 15m", name="quick")])
@beat.step
def tick(run): ...
"""
)


def add(here, *more):
    return here("schedules", "add", "morning", "send_email", "0 9 * * MON-FRI", *more)


def test_a_schedule_is_added_listed_paused_and_removed(here, shop):
    assert here("schedules", "list").err.startswith("there are no schedules")
    added = add(here, "--timezone", "Europe/Berlin", "--input", "7")
    assert "set: at 09:00 on Monday through Friday (Europe/Berlin), next in" in added.out
    assert "is so already" in add(here, "--timezone", "Europe/Berlin", "--input", "7").out
    shop.do("update pgflowd.schedules set due_at = '2127-01-01', ticks_from = '2127-01-01'")

    listed = here("schedules", "list").out
    assert re.search(r"morning +send_email +in \d+d\d+h +. +on +at 09:00 on Monday", listed)
    assert "schedule morning  at 09:00 on Monday" in here("flows", "show", "send_email").out
    assert "schedule morning paused" in here("schedules", "pause", "morning").out
    assert re.search(r"morning .* paused by postgres +at 09:00", here("schedules", "list").out)
    assert "is paused already" in here("schedules", "pause", "morning").out
    assert "is paused; `pgflowd schedules resume" in here("schedules", "next", "morning").err
    (found,) = here("schedules", "list", "--flow", "send_email", "--json").json["schedules"]
    assert (found["input"], found["origin"], found["paused_by"]) == (7, "operator", "postgres")
    assert "removed" in here("schedules", "remove", "morning").out
    assert here("schedules", "list", "--json").json["schedules"] == []


def test_what_is_wrong_is_told_before_anything_is_written(here, shop):
    for more, text in (
        (("--timezone", "Europe/Berln"), "tz database"),
        (("--overlap", "skp"), "did you mean 'skip'"),
        (("--catchup", "two"), "one, none, all"),
    ):
        refused = add(here, *more)
        assert (refused.code, "E224" in refused.err, text in refused.err) == (78, True, True)
    refused = here("schedules", "add", "morning", "send_email", "9 * *")
    assert "must have five fields" in refused.err
    refused = here("schedules", "add", "morning", "send_mail", "@daily")
    assert (refused.code, "did you mean 'send_email'" in refused.err) == (4, True)
    assert shop.rows("select name from pgflowd.schedules") == []


def test_the_next_ticks_show_how_the_clock_is_changed(here, shop):
    here("schedules", "add", "daily", "send_email", "30 2 * * *", "--timezone", "Europe/Berlin")

    out = here("schedules", "next", "daily", "--count", "366").out

    assert "the clock is put forward by 1h00m" in out and "the clock is put back by 1h00m" in out
    assert re.search(r"Sun \d{4}-03-\d\d 03:00:00 \+0200", out)


def test_fire_starts_a_run_unless_one_goes_on(here, shop):
    add(here)

    fired = here("schedules", "fire", "morning", "--json").json
    assert fired["status"] == "started"
    assert "has not ended, and its overlap is skip" in here("schedules", "fire", "morning").out
    assert here("runs", "list", "--label", "schedule=morning", "--json").json["runs"]
    shop.do("update pgflowd.schedules set error = 'it is full', failed_at = now()")
    listed = here("schedules", "list").out
    assert "no run" in listed and "morning: it is full" in listed
    examined = here("doctor").out
    assert "E327" in examined and "morning has started no run" in examined


def test_the_code_brings_schedules_and_check_says_them_in_words(here, project, shop):
    (project / "shop_flows.py").write_text(CODE)
    assert here("flows", "deploy").code == 0

    ended = here("check")
    assert ended.code == 0
    assert "schedule beat: at 03:00 every day (Europe/Berlin)" in ended.out
    assert "schedule beat.quick: every 15m" in ended.out
    assert [each["name"] for each in here("check", "--json").json["flows"][-1]["schedules"]] == [
        "beat", "beat.quick",
    ]  # fmt: skip
    kept = here("schedules", "remove", "beat.quick")
    assert "it comes back" in kept.err
    differs = here("check").out
    assert "W310" in differs and "schedule beat.quick is in the code only" in differs
    assert "flows deploy beat" in differs
    here("schedules", "add", "beat.quick", "send_email", "@daily")
    taken = here("check")
    assert (taken.code, "E224" in taken.out, "an operator has one" in taken.out) == (1, True, True)

    (project / "shop_flows.py").write_text(MODULE)
    orphaned = here("check").out
    assert "W319" in orphaned and "pgflowd schedules remove beat" in orphaned


def test_a_wrong_schedule_of_the_code_is_refused(here, project, shop):
    (project / "shop_flows.py").write_text(CODE.replace("0 3 * * *", "0 3 * *"))

    ended = here("check")

    assert (ended.code, "E224" in ended.out, "five fields" in ended.out) == (1, True, True)
