"""
What other programs need of pgflowd: `pgflowd monitoring` prints the files of `monitoring/` for
Prometheus and Grafana, `completion` a script for a shell, `version` the versions of pgflowd and its
dependencies. None of them needs a database.

The script calls `pgflowd` for suggestions, so it never becomes outdated. Versions are those of the
metadata of the installed packages, none of which is imported.
"""

from __future__ import annotations

import platform
from typing import Annotated, TypedDict

import click
from click.shell_completion import ShellComplete, get_completion_class

from pgflowd import __version__
from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Command, Group
from pgflowd.cli.main import COMPLETE_VARIABLE
from pgflowd.resources import shipped

AT_LOADING = '    _pgflowd_completion "$@"'


class MonitoringFile(TypedDict):
    file: str
    text: Annotated[str, "what is in it"]


@click.group(cls=Group)
def monitoring() -> None:
    """Print what Prometheus and Grafana need to watch a daemon with [http] listen.

    \b
    Example: pgflowd monitoring alerts > alerts.yml
    """


def _printing(name: str, file: str, help: str, saved: str) -> Command:
    """The command that prints a file of `monitoring/`, which people save by this name."""
    example = f"\n\n\b\nExample: pgflowd monitoring {name} > {saved}"

    @click.command(name, cls=Command, prints=MonitoringFile, help=help + example)
    @pass_app
    def print_file(app: App) -> None:
        text = (shipped("monitoring") / file).read_text(encoding="utf-8")
        app.print_result(text.removesuffix("\n"), MonitoringFile(file=file, text=text))

    return print_file


for _file in (
    ("scrape", "scrape.yml", "Print a prometheus.yml that scrapes the daemon and reads the alerts.",
     "prometheus.yml"),
    ("alerts", "alerts.yml", "Print the alert rules for Prometheus.", "alerts.yml"),
    ("grafana", "grafana.json", "Print a dashboard for Grafana, to be imported there.",
     "pgflowd.json"),
):  # fmt: skip
    monitoring.add_command(_printing(*_file))


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


class Versions(TypedDict):
    pgflowd: str
    python: str
    psycopg: str | None
    pgmq: str | None
    click: str | None
    multiprocess: str | None
    setproctitle: str | None
    sdnotify: str | None


@click.command(cls=Command, prints=Versions)
@pass_app
def version(app: App) -> None:
    """Print the versions of pgflowd and its dependencies.

    \b
    Example: pgflowd version --json
    """
    from importlib import metadata

    parts: dict[str, str | None] = {"pgflowd": __version__, "python": platform.python_version()}
    for name in list(Versions.__annotations__)[2:]:
        try:
            parts[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            parts[name] = None
    width = max(map(len, parts))
    lines = [f"{name:<{width}}  {number or 'not installed'}" for name, number in parts.items()]
    app.print_result("\n".join(lines), parts)
