"""
`pgflowd completion`: print the script that completes commands in a shell.

The script calls `pgflowd` for suggestions, so it never becomes outdated.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import click
from click.shell_completion import ShellComplete, get_completion_class

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command
from pgflowd.cli.main import COMPLETE_VARIABLE

AT_LOADING = '    _pgflowd_completion "$@"'


class CompletionScript(TypedDict):
    shell: Annotated[str, "the shell"]
    script: Annotated[str, "what the shell is to read"]


@click.command(cls=Command, prints=CompletionScript)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@pass_app
def completion(app: App, shell: str) -> None:
    """Print a script that completes commands in SHELL: bash, zsh or fish.

    \b
    Example: pgflowd completion bash > ~/.local/share/bash-completion/completions/pgflowd
    Example: pgflowd completion fish > ~/.config/fish/completions/pgflowd.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = ShellComplete.source(kind(click.Command(None), {}, "pgflowd", COMPLETE_VARIABLE))
    # click's zsh script, once zsh has loaded it from a file, forgets to complete the second time
    script = script.replace(AT_LOADING, f"    compdef _pgflowd_completion pgflowd\n{AT_LOADING}")
    app.print_result(script, CompletionScript(shell=shell, script=script))
