"""The options of the command line."""
import os
import sys
import time

from rpython.rlib import jit
from rpython.rlib.rarithmetic import intmask, r_uint
from rpython.rlib.rfloat import string_to_float
from rpython.rlib.rstring import ParseStringError

from guest.objects import UsageError, parse_int

USAGE = """\
usage: guest [FLAGS] PROGRAM [NUMBERS]

Runs a program of the guest language.  FLAGS, all before PROGRAM:

  --allocation-sampling BYTES   sample allocations, one per so many bytes on
                                average: 1 to 2**62, or with k, M or G; or
                                auto:NUMBER/s, no more samples a second
  --allocation-seed NUMBER      make a run repeatable: 0 to 2**63 - 1
  --allocation-distribution KIND
                                exponential (default) or fixed
  --no-lifetimes                not what becomes of the sampled objects
  --period SECONDS              take time samples: 0.000001 to less than 1
  --memory                      record the process's memory with the samples
  --native                      record native frames, too; needs libunwind
  -o FILE                       the profile (default: out.vmprof)
  --jit PARAMETERS              parameters of the JIT: off, default, or
                                name=value,...
  --help                        show this text

Without --allocation-sampling and --period there is no profile.
"""


class Options(object):
    """The options of a run, with their defaults."""
    # mean number of bytes between allocation samples, and seconds between CPU samples;
    # 0 for no samples of this kind
    interval = 0
    period = 0.0
    # limit of allocation samples per second; 0 for no limit
    per_second = 0
    fixed = False
    lifetimes = True
    memory = False
    native = False
    output = "out.vmprof"
    # the path of the program, or "--help"
    program = ""

    def __init__(self):
        """Set the defaults."""
        # the default seed differs in each run
        self.seed = intmask(int(time.time() * 1e6) ^ (os.getpid() << 42))
        self.arguments = []

    def allocations(self, run):
        """Return the argument 'allocations' of rvmprof.enable()."""
        if self.interval == 0:
            return ""
        return "interval=%d;seed=%s;gaps=%s;limit=%s;lifetimes=%d;run=%s" % (
            self.interval, str(r_uint(self.seed)),
            "fixed" if self.fixed else "exponential",
            "%d/s" % self.per_second if self.per_second else "",
            int(self.lifetimes), run)


def parse_number(text, smallest, largest):
    """Return the number in a text, which may end with k, M or G.  Raises ValueError."""
    factor = 1
    if text:
        factor = 1 << 10 * ("KMG".find(text[-1].upper()) + 1)
        if factor > 1:
            text = text[:-1]
    number = parse_int(text)
    if not smallest <= number <= largest // factor:
        raise ValueError
    return factor * number


def set_value(options, flag, value):
    """Set an option.  Raises ValueError or ParseStringError if the value is invalid."""
    if flag == "--allocation-sampling":
        if value.startswith("auto:") and value.endswith("/s"):
            options.per_second = parse_number(
                value[5:max(5, len(value) - 2)], 1, 1000000)
            # the first interval, which the limit then changes
            options.interval = 65536
        else:
            options.per_second = 0
            options.interval = parse_number(value, 1, 2**62)
    elif flag == "--allocation-seed":
        options.seed = parse_number(value, 0, sys.maxint)
    elif flag == "--allocation-distribution":
        if value not in ("exponential", "fixed"):
            raise ValueError
        options.fixed = value == "fixed"
    elif flag == "--period":
        options.period = string_to_float(value)
        # vmprof's limits; `not` also refuses nan
        if not 0.000001 <= options.period < 1.0:
            raise ValueError
    elif flag == "-o":
        options.output = value
    elif flag == "--jit":
        jit.set_user_param(None, value)
    else:
        raise UsageError("unknown flag '%s'; guest --help shows them all" % flag)


def parse(argv):
    """Return the Options of a command line, without the name of the interpreter.

    Sets the JIT's parameters.  Raises UsageError.
    """
    options = Options()
    flags = []
    while argv and argv[0].startswith("-") and argv[0] != "--help":
        flag = argv.pop(0)
        flags.append(flag)
        if flag == "--no-lifetimes":
            options.lifetimes = False
        elif flag == "--memory":
            options.memory = True
        elif flag == "--native":
            options.native = True
        elif argv:
            value = argv.pop(0)
            try:
                set_value(options, flag, value)
            except (ValueError, ParseStringError):
                raise UsageError("%s: '%s' is nothing that it takes; guest --help "
                                 "shows what is" % (flag, value))
    if not argv:
        raise UsageError("there is no program to run; guest --help shows the usage")
    options.program = argv.pop(0)
    for text in argv:
        try:
            options.arguments.append(parse_int(text))
        except ValueError:
            raise UsageError("programs take whole numbers, not '%s'" % text)
    for flag in flags:
        if options.interval == 0 and options.period == 0.0 and flag != "--jit":
            raise UsageError("%s needs --allocation-sampling BYTES or --period "
                             "SECONDS" % flag)
    if options.fixed and options.per_second > 0:
        raise UsageError("--allocation-distribution: fixed ones can't follow a limit")
    return options
