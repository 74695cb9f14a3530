"""Annotates a program.  Runs on PyPy 2.7, with an RPython tree on its path.

    toolchain_worker.py TARGET

As `python -m rpython --annotate TARGET` does, which however forgets first
what it knew of the C compiler: two thirds of its time would be gcc's.
"""
import os
import sys

from rpython.translator.driver import TranslationDriver


def main(path):
    folder, name = os.path.split(os.path.abspath(path))
    sys.path.insert(0, folder)
    target = __import__(os.path.splitext(name)[0])
    # as rpython does: PyPy's own limit is too low
    sys.setrecursionlimit(2000)
    TranslationDriver.from_targetspec(vars(target)).proceed(["annotate"])


if __name__ == "__main__":
    main(sys.argv[1])
