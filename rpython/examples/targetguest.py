"""The main module of the guest interpreter, which RPython translates to `guest`.

It also runs without translation, slowly and without a profile::

    pypy targetguest.py PROGRAM [NUMBERS]
"""
import os
import sys

from rpython.rlib import rthread

from guest import interpreter, options
from guest.objects import RunError, UsageError
from guest.profile import profile
from guest.reader import Reader


def tell(message):
    """Print a message to stderr."""
    interpreter.write(2, "guest: %s\n" % message)


def read_file(filename):
    """Return the text of a file.  Raises UsageError."""
    text = ""
    try:
        fd = os.open(filename, os.O_RDONLY, 0)
        chunk = os.read(fd, 65536)
        while chunk:
            text += chunk
            chunk = os.read(fd, 65536)
        os.close(fd)
    except OSError as e:
        raise UsageError("can't read the program '%s': %s" % (
            filename, os.strerror(e.errno)))
    return text


def main(argv):
    """Run a program, and return the exit code.  Raises UsageError."""
    wishes = options.parse(argv[1:])
    if wishes.program == "--help":
        interpreter.write(1, options.USAGE)
        return 0
    program = Reader(read_file(wishes.program), wishes.program)
    code = program.main(len(wishes.arguments))
    profile.start(wishes, program.classes.values())
    try:
        interpreter.run(code, wishes.arguments)
    except RunError as e:
        tell(e.where + e.message)
        return 1
    finally:
        message = profile.stop()
        if message:
            tell(message)
    return 0


def entry_point(argv):
    """Run the command, and return the exit code."""
    # rvmprof's C code needs the identity of the thread.  RPython omits it from programs
    # that do not use it.
    rthread.get_ident()
    try:
        return main(argv)
    except UsageError as e:
        tell(e.message)
        return 2


def target(driver, args):
    """Return the main function of the translated program, for RPython."""
    driver.exe_name = "guest"
    return entry_point, None


def jitpolicy(driver):
    """Return the JIT's policy: RPython's default."""
    from rpython.jit.codewriter.policy import JitPolicy
    return JitPolicy()


if __name__ == "__main__":
    sys.exit(entry_point(sys.argv))
