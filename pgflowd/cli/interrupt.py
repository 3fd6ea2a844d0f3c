"""
Entry: where the command `pgflowd` begins: Ctrl-C ends it quietly from here on.

Importing the rest takes a moment, in which nobody could catch an interrupt. So it ends the
process at once until `cli.main` is ready to handle it, and again when that is done. One that
came while Python was in a callback of its own, which drops exceptions, comes once more. At the
very end none counts: Python itself would leave it to its default action, which is to be killed.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
from types import FrameType

_INTERRUPTED = 130
_SOON_S = 0.01  # later than the callback's end


def quietly(number: int, frame: FrameType | None) -> None:
    os._exit(_INTERRUPTED)


def on_interrupt(handler: signal._HANDLER) -> None:
    """Handle Ctrl-C so, unless whoever started us has it ignored, or it is handled otherwise."""
    if signal.getsignal(signal.SIGINT) in (quietly, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)


def once_more(dropped: sys.UnraisableHookArgs) -> None:
    """Interrupt again where an interrupt was dropped; as `sys.unraisablehook`."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_soon, ())
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_soon() -> None:
    time.sleep(_SOON_S)
    os.kill(os.getpid(), signal.SIGINT)


on_interrupt(quietly)
atexit.register(on_interrupt, signal.SIG_IGN)  # the first to come is the last to be called


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        from pgflowd.cli.main import main

        main()
    except KeyboardInterrupt:  # one more, while the first was being obeyed
        os._exit(_INTERRUPTED)


if __name__ == "__main__":
    main()
