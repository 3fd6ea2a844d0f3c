"""`python -m pgflowd`: the same as the command `pgflowd`."""

from pgflowd.cli.interrupt import main

if __name__ == "__main__":
    main()
