"""The command `python -m vmprof_convert`."""
import sys

from vmprof_convert.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
