"""
Handles Ctrl-C for the command `pgflowd`; `__main__` imports this module first.

While the other modules are imported no code can catch an interrupt. So an interrupt ends the
process at once until `cli.main` is ready to handle it, and again when that is done. Python
drops an interrupt that arrives during some of its own callbacks; it is then sent again. At the
very end interrupts are ignored, because Python would restore the default action, which kills
the process.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import sys
import time
from types import FrameType

INTERRUPTED = 130  # 128 + SIGINT, as shells report it
_REPEAT_S = 0.01  # long enough for the callback to end


def exit_quietly(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def on_interrupt(handler: signal._HANDLER) -> None:
    """Set the handler, unless the parent process ignores Ctrl-C or another handler is set."""
    if signal.getsignal(signal.SIGINT) in (exit_quietly, signal.default_int_handler):
        signal.signal(signal.SIGINT, handler)


def repeat_interrupt(dropped: sys.UnraisableHookArgs) -> None:
    """As `sys.unraisablehook`: send an interrupt again that Python dropped."""
    if issubclass(dropped.exc_type, KeyboardInterrupt):
        _thread.start_new_thread(_interrupt_soon, ())
    else:
        sys.__unraisablehook__(dropped)


def _interrupt_soon() -> None:
    time.sleep(_REPEAT_S)
    os.kill(os.getpid(), signal.SIGINT)


on_interrupt(exit_quietly)
atexit.register(on_interrupt, signal.SIG_IGN)  # registered first, so it is called last
