"""
Entry: where the command `pgflowd` begins: Ctrl-C ends it quietly from here on.

Importing the rest takes a moment, in which nobody could catch an interrupt. So it ends the
process at once until `cli.main` is ready to handle it, and again when that is done.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

_INTERRUPTED = 130


def quietly(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


def on_interrupt(handler: signal._HANDLER) -> None:
    """Handle Ctrl-C so, unless whoever started us has it ignored, or it is handled otherwise."""
    if signal.getsignal(signal.SIGINT) in (quietly, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)


on_interrupt(quietly)


def main() -> None:
    """Run the command line of this process and exit."""
    from pgflowd.cli.main import main

    main()


if __name__ == "__main__":
    main()
