"""
Defines how a failed use of the database is handled; `db.errors.failure_of` decides which applies.
"""

from __future__ import annotations

from enum import StrEnum

# the SQLSTATEs after which the same statement may succeed later, or their beginnings
RETRY_STATES = ("08", "25006", "25P03", "40", "53", "55006", "55P03", "57", "58", "XX")


class DatabaseFailure(StrEnum):
    """The value is the label `kind` of the metric database_errors."""

    RETRY = "again"  # try again soon
    ALERT = "loud"  # try again soon, and log an error, because a person has to act
    BROKEN = "fault"  # the installation is wrong: try again, but rarely
    GONE = "gone"  # the worker's row or its flow is gone
    SCHEMA = "core"  # schema pgflow has changed
