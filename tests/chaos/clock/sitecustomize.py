"""
A wall clock that can be shifted, for every Python process that has this directory on PYTHONPATH.

`time.time` and `time.time_ns` add the seconds written in the file $CHAOS_CLOCK; what C code reads
by itself is not shifted, and nor is the monotonic clock, as on a machine whose clock is corrected.
"""

import os
import time

_real_ns = time.time_ns
_file = os.environ.get("CHAOS_CLOCK", "")


def _shift_ns() -> int:
    try:
        with open(_file) as file:  # noqa: PTH123
            return int(float(file.read() or 0) * 1e9)
    except (OSError, ValueError):
        return 0


def _time_ns() -> int:
    return _real_ns() + _shift_ns()


def _time() -> float:
    return _time_ns() / 1e9


if _file:
    time.time_ns, time.time = _time_ns, _time
