"""What allocation sampling costs in a program that was translated with the
patch: the guest interpreter of rpython/examples, without and with the JIT.

Pairs of fresh processes as in overhead.py, whose figures it uses; whole
processes are timed, the profile's opening and closing included.  README.rst
says how to read the result.
"""
from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from overhead import FEWEST_PAIRS, NURSERY, PAIRS, ROOT, estimate, table
from vmprof_allocation import reader

BUILDS = ("guest", "guest-jit")
PROGRAM = ROOT / "rpython" / "examples" / "programs" / "gcbench.guest"
RATES = ("32k", "128k", "512k", "1M", "4M", "32M")
#: rounds of the program, about half a second each
ROUNDS = {"guest": "6", "guest-jit": "40"}


def seconds(command: list[str | Path], folder: Path) -> float:
    start = time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env={"PYPY_GC_NURSERY": NURSERY, "PATH": os.defpath}, text=True)
    result = time.perf_counter() - start
    if done.returncode != 0:
        raise RuntimeError("%s failed: %s" % (command[0], done.stderr))
    return result


def measure(pairs: int, folder: Path) -> list[tuple[str, ...]]:
    ratios: dict[tuple[str, str], list[float]] = {}
    samples: dict[tuple[str, str], int] = {}
    for number in range(pairs):
        for build in BUILDS:
            guest = ROOT / ".build" / "rpython" / build
            plain = [guest, PROGRAM, ROUNDS[build]]
            for rate in RATES:
                sampled = [guest, "--allocation-sampling", rate, *plain[1:]]
                times = {}
                order = [("plain", plain), ("sampled", sampled)]
                for name, command in order if number % 2 else order[::-1]:
                    times[name] = seconds(command, folder)
                ratios.setdefault((build, rate), []).append(
                    times["sampled"] / times["plain"])
                if number == 0:
                    profile = reader.read(folder / "out.vmprof")
                    samples[build, rate] = len(profile.samples)
    return [(build, rate, estimate(values).format(3),
             "%d" % samples[build, rate])
            for (build, rate), values in ratios.items()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=PAIRS,
                        help="pairs of processes (%(default)s)")
    pairs = parser.parse_args().pairs
    if pairs < 1:
        parser.error("--pairs: %d is not a number of pairs; give 1 or more"
                     % pairs)
    for build in BUILDS:
        if not (ROOT / ".build" / "rpython" / build).exists():
            print("patched.py: error: there is no .build/rpython/%s: run "
                  "`make bench`, which builds it" % build, file=sys.stderr)
            return 2
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(pairs, Path(folder))
    print("the patch, gcbench.guest (%d pairs of processes%s):\n" % (
        pairs, "" if pairs >= FEWEST_PAIRS else ", too few for an interval"))
    print("\n".join(table([("build", "rate", "wall ratio", "samples"), *rows])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
