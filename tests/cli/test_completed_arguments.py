"""Each shell completes each argument and option value of every command, by its type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import click
import pytest

from pgflowd.cli.main import cli, run
from pgflowd.core.failure import APPROVAL

# types of what a user makes up: numbers, times, JSON
FREE = (click.types.FuncParamType, click.IntRange, type(click.INT), type(click.UUID))
FREE_TEXTS = {
    "--reason", "--note", "--key", "--after-key", "--singleton", "--text", "--dedup", "--as",
    "--code", "--actor", "--listen", "--database-url", "--instance", "schedules add CRON",
    "db set VALUE", "web passwd NAME", "web token NAME",
}  # fmt: skip


class Place(NamedTuple):
    """An argument or option of a command, and the words that are typed before it."""

    name: str
    words: str
    param: click.Parameter

    @property
    def is_free(self) -> bool:
        if self.param._custom_shell_complete is not None:
            return False
        named = {self.name, *self.param.opts} & FREE_TEXTS
        return bool(named) if self.param.type is click.STRING else isinstance(self.param.type, FREE)


def places(command: click.Command, ctx: click.Context, words: str) -> Iterator[Place]:
    """The places of a command and of all below it; the arguments before an option are typed."""
    if isinstance(command, click.Group):
        for name in command.list_commands(ctx):
            below = command.get_command(ctx, name)
            assert below is not None
            yield from places(below, click.Context(below, parent=ctx), f"{words} {name}")
    shared = [] if ctx.parent is None else command.global_options
    typed = words
    for argument in (each for each in command.params if isinstance(each, click.Argument)):
        shown = argument.human_readable_name.strip("[].")
        yield Place(f"{words} {shown}".removeprefix("pgflowd "), typed, argument)
        typed += {"run": " @last", "flow": " analyze_website"}.get(argument.name, " word")
    for option in (each for each in command.params if isinstance(each, click.Option)):
        if not option.is_flag and not option.hidden and option not in shared:
            name = f"{words} {option.opts[0]}".removeprefix("pgflowd ")
            yield Place(name, f"{typed} {option.opts[0]}", option)


PLACES = list(places(cli, click.Context(cli), "pgflowd"))


@pytest.fixture
def everything(shop, elsewhere, monkeypatch) -> None:
    """A database in which something of each kind can be named."""
    monkeypatch.setenv("PGFLOWD__DATABASE__URL", shop.database.dsn)
    shop.tell_daemon("app1", uuid4())
    assert run(["schedules", "add", "morning", "send_email", "@daily"]) == 0
    shop.start("send_email")
    shop.claim_all("send_email")
    shop.stall()
    shop.start()
    shop.complete(shop.claim_all()["website#0"], 1)
    keys = shop.claim_all()
    shop.suspend(keys["sentiment#0"], kind="signal", name="paid")
    shop.suspend(keys["summary#0"], kind="signal", name="summary", why=APPROVAL)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_words_for_each_argument(shell, everything, monkeypatch, capfd):
    wrong = {}
    for place in PLACES:
        monkeypatch.setenv("COMP_WORDS", f"{place.words} ")
        last = "" if shell == "fish" else str(len(place.words.split()))
        monkeypatch.setenv("COMP_CWORD", last)
        monkeypatch.setenv("_PGFLOWD_COMPLETE", f"{shell}_complete")
        assert run([]) == 0, place
        if bool(capfd.readouterr().out.strip()) == place.is_free:
            wrong[place.name] = place.param.type
    assert wrong == {}
