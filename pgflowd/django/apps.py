"""The application that has the commands of manage.py."""

from __future__ import annotations

from django.apps import AppConfig


class PgflowdConfig(AppConfig):  # type: ignore[misc,unused-ignore]
    """`"pgflowd.django"` in INSTALLED_APPS."""

    name = "pgflowd.django"
    label = "pgflowd"
    verbose_name = "pgflowd"
