"""Record profiles of gcbench at several intervals, with many seeds.

    accuracy_worker.py FOLDER SEEDS INTERVAL...

The experiment `accuracy` runs this script. At a sampling interval of 1, the script
samples every object once, which gives the true values. The name of each profile is its
sampling interval and seed.
"""
from __future__ import annotations

import contextlib
import io
import os
import sys

import vmprof_allocation
from programs import gcbench


def main(folder: str, seeds: int, intervals: list[str]) -> None:
    """Record a profile into the folder for each seed and sampling interval."""
    for interval in intervals:
        for seed in range(1 if interval == "1" else seeds):
            profile = os.path.join(folder, "%s-%d" % (interval, seed))
            with contextlib.redirect_stdout(io.StringIO()), \
                    vmprof_allocation.sample(profile, interval, seed=seed):
                gcbench.main(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
