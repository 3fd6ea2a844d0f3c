"""
`pgflowd monitoring`: prints the files of `monitoring/`, for Prometheus and Grafana.
"""

from __future__ import annotations

from typing import Annotated, TypedDict

import click

from pgflowd.cli.app import App, pass_app
from pgflowd.cli.groups import Group
from pgflowd.resources import shipped


class MonitoringFile(TypedDict):
    file: str
    text: Annotated[str, "what is in it"]


@click.group(cls=Group)
def monitoring() -> None:
    """Print what Prometheus and Grafana need to watch a daemon with [http] listen.

    \b
    Example: pgflowd monitoring alerts > alerts.yml
    """


@monitoring.command(prints=MonitoringFile)
@pass_app
def scrape(app: App) -> None:
    """Print a prometheus.yml that scrapes the daemon and reads the alerts.

    \b
    Example: pgflowd monitoring scrape > prometheus.yml
    """
    _print(app, "scrape.yml")


@monitoring.command(prints=MonitoringFile)
@pass_app
def alerts(app: App) -> None:
    """Print the alert rules for Prometheus.

    \b
    Example: pgflowd monitoring alerts > alerts.yml
    """
    _print(app, "alerts.yml")


@monitoring.command(prints=MonitoringFile)
@pass_app
def grafana(app: App) -> None:
    """Print a dashboard for Grafana, to be imported there.

    \b
    Example: pgflowd monitoring grafana > pgflowd.json
    """
    _print(app, "grafana.json")


def _print(app: App, name: str) -> None:
    text = (shipped("monitoring") / name).read_text(encoding="utf-8")
    app.print_result(text.removesuffix("\n"), MonitoringFile(file=name, text=text))
