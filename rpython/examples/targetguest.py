"""Translated by RPython to the program `guest`.

Untranslated it runs too, slowly and without a profile::

    pypy targetguest.py PROGRAM [ARGUMENTS]
"""
import os
import sys

from rpython.rlib import rstackovf, rthread

from guest import compiler, interpreter, options, parser
from guest.errors import ProgramError, RunError, UsageError
from guest.profile import Profile

EXIT_RUN_ERROR = 1
EXIT_BAD_INPUT = 2

STDOUT = 1
STDERR = 2
CHUNK = 65536


def write(fd, text):
    """To a stream of which nothing depends: errors are ignored."""
    try:
        while text:
            written = os.write(fd, text)
            assert written >= 0
            text = text[written:]
    except OSError:
        pass


def tell(message):
    write(STDERR, "guest: %s\n" % message)


def read_file(filename):
    try:
        fd = os.open(filename, os.O_RDONLY, 0)
        try:
            chunks = []
            while True:
                chunk = os.read(fd, CHUNK)
                if not chunk:
                    return "".join(chunks)
                chunks.append(chunk)
        finally:
            os.close(fd)
    except OSError as e:
        raise UsageError("can't read the program '%s': %s" % (
            filename, os.strerror(e.errno)))


def load(filename):
    text = read_file(filename)
    try:
        return compiler.compile_program(parser.parse(text), filename)
    except ProgramError as e:
        raise UsageError(e.describe(filename))
    except rstackovf.StackOverflow:
        rstackovf.check_stack_overflow()
        raise UsageError("the program '%s' is nested too deeply; use "
                         "variables for parts of it" % filename)


def run(program, arguments):
    try:
        interpreter.run(program, arguments)
    except RunError as e:
        tell(e.describe())
        return EXIT_RUN_ERROR
    return 0


def main(argv):
    wishes = options.parse(argv[1:])
    if wishes.help:
        write(STDOUT, options.USAGE)
        return 0
    program = load(wishes.program)
    profile = Profile(wishes)
    profile.start(program)
    try:
        return run(program, wishes.arguments)
    finally:
        message = profile.stop()
        if message:
            tell(message)


def entry_point(argv):
    # rvmprof's C code needs the identity of the thread, and RPython leaves it
    # out of programs that never ask for it
    rthread.get_ident()
    try:
        return main(argv)
    except UsageError as e:
        tell(e.message)
        return EXIT_BAD_INPUT


def target(driver, args):
    driver.exe_name = "guest"
    return entry_point, None


def jitpolicy(driver):
    from rpython.jit.codewriter.policy import JitPolicy
    return JitPolicy()


if __name__ == "__main__":
    sys.exit(entry_point(sys.argv))
