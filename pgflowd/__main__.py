"""The command `pgflowd`, also as `python -m pgflowd`. Ctrl-C ends it quietly at any moment."""

import os

from pgflowd.cli.interrupt import INTERRUPTED


def main() -> None:
    """Run the command line of this process and exit."""
    try:
        from pgflowd.cli.main import main

        main()
    except KeyboardInterrupt:  # a second one, while the first was handled
        os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
