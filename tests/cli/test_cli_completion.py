"""Completion from the database: flows, runs and tasks; quick, and silent when it cannot."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgflowd.core.failure import APPROVAL


@pytest.fixture
def suggested(process, shop) -> Callable[..., list[str]]:
    """The suggestions of a shell for the last of these words."""

    def ask(words: str, dsn: str = shop.database.dsn) -> list[str]:
        env = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
        ended = process(**env, _PGFLOWD_COMPLETE="bash_complete", PGFLOWD__DATABASE__URL=dsn)
        assert ended.err == ""
        return [line.partition(",")[2] for line in ended.out.split()]

    return ask


def test_flows_are_suggested(suggested):
    assert suggested("pgflowd runs start s") == ["store_items", "send_email"][::-1]
    assert suggested("pgflowd flows show an") == ["analyze_website"]
    assert suggested("pgflowd runs list --flow st") == ["store_items"]


def test_runs_are_suggested_by_their_last_digits(suggested, shop):
    first, second = (str(shop.start("send_email"))[-8:] for _ in range(2))

    assert set(suggested("pgflowd runs show ")) == {"@last", first, second}
    assert suggested("pgflowd runs follow @last " + first[:5]) == [first]
    assert set(suggested("pgflowd flows graph send_email --run ")) == {"@last", first, second}


def test_stalled_tasks_are_suggested(suggested, shop):
    run_id = shop.start("send_email")
    shop.claim_all("send_email")
    shop.stall()

    assert suggested("pgflowd stalled requeue ") == [f"{str(run_id)[-8:]}/perform#0"]


def test_what_waits_is_suggested(suggested, shop):
    run_id = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    keys = shop.claim_all()
    shop.suspend(keys["sentiment#0"], kind="signal", name="paid")
    shop.suspend(keys["summary#0"], kind="signal", name="summary", why=APPROVAL)
    short = str(run_id)[-8:]

    assert set(suggested("pgflowd tasks wake ")) == {f"{short}/sentiment#0", f"{short}/summary#0"}
    assert set(suggested(f"pgflowd runs signal {short} ")) == {"paid", "summary"}
    assert suggested("pgflowd runs signal @last p") == ["paid"]
    assert suggested("pgflowd runs approve @last ") == ["summary"]
    assert suggested("pgflowd runs reject nonsense! ") == []
    assert set(suggested("pgflowd tasks list --run ")) == {"@last", short}


def test_a_name_that_would_tear_the_list_is_not_suggested(suggested, shop):
    run_id = shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    shop.suspend(shop.claim_all()["sentiment#0"], kind="signal", name="a\nplain,b\x1b[31m")
    short = str(run_id)[-8:]

    assert suggested(f"pgflowd runs signal {short} ") == []
    assert suggested("pgflowd tasks wake ") == [f"{short}/sentiment#0"]


def test_a_database_that_is_not_there_is_passed_over_in_silence(suggested, shop):
    shop.start()

    assert suggested("pgflowd runs start a", "postgresql://127.0.0.1:1/x") == []
    assert suggested("pgflowd runs show ", "postgresql://127.0.0.1:1/x") == ["@last"]
    assert suggested("pgflowd runs show ", "nonsense://") == ["@last"]


def test_a_wrong_config_is_passed_over_in_silence(suggested, elsewhere):
    (elsewhere / "pgflowd.toml").write_text("[worker]\nnonsense = 1\n")

    assert suggested("pgflowd runs start a") == []
