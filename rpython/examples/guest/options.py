"""The command line."""
import os
import time

from rpython.rlib import jit
from rpython.rlib.rarithmetic import intmask, r_uint
from rpython.rlib.rfloat import string_to_float
from rpython.rlib.rstring import ParseStringError

from guest.errors import UsageError

USAGE = """\
usage: guest [FLAGS] PROGRAM [ARGUMENTS]

Runs a program of the guest language. FLAGS, all before PROGRAM:

  --allocation-sampling BYTES   sample allocations, one per so many bytes on
                                average: 1 to 2**62, or with k, M or G; or
                                auto:NUMBER/s, no more samples a second
  --allocation-seed NUMBER      make a run repeatable: 0 to 2**64 - 1
  --allocation-gaps KIND        exponential (default) or fixed
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

MAX_INTERVAL = 2 ** 62
# what a limit begins with
FIRST_INTERVAL = 65536
MAX_PER_SECOND = 1000000
# vmprof's own limits
MIN_PERIOD = 0.000001
MAX_PERIOD = 1.0


class Options(object):
    def __init__(self):
        self.help = False
        # 0: no samples of this kind
        self.interval = 0
        self.period = 0.0
        # samples a second at most; 0: as many as there are
        self.per_second = 0
        # another one each time
        self.seed = intmask(int(time.time() * 1e6) ^ (os.getpid() << 42))
        self.fixed = False
        self.lifetimes = True
        self.memory = False
        self.native = False
        self.output = ""
        self.program = ""
        self.arguments = []

    def wants_profile(self):
        return self.interval > 0 or self.period > 0.0


def parse_number(text, start, end, largest):
    """The whole number text[start:end], or 0 if it is none from 1 to
    `largest`."""
    number = 0
    for i in range(start, end):
        digit = ord(text[i]) - ord("0")
        if not 0 <= digit <= 9 or number > (largest - digit) // 10:
            return 0
        number = number * 10 + digit
    return number


def parse_interval(text):
    refusal = UsageError(
        "--allocation-sampling: '%s' is not a number of bytes; give a whole "
        "number from 1 to 2**62, or one with k, M or G (powers of 1024), for "
        "example 128k" % text)
    digits = len(text)
    factor = 1
    if digits > 0:
        suffix = text[digits - 1]
        if suffix == "k" or suffix == "K":
            factor = 1024
        elif suffix == "m" or suffix == "M":
            factor = 1024 ** 2
        elif suffix == "g" or suffix == "G":
            factor = 1024 ** 3
        if factor > 1:
            digits -= 1
    number = parse_number(text, 0, digits, MAX_INTERVAL // factor)
    if number == 0:
        raise refusal
    return number * factor


def parse_per_second(text):
    refusal = UsageError(
        "--allocation-sampling: '%s' is not a limit; give auto:NUMBER/s, with "
        "a number of samples from 1 to 1000000" % text)
    number = 0
    if text.startswith("auto:") and text.endswith("/s"):
        number = parse_number(text, len("auto:"), len(text) - len("/s"),
                              MAX_PER_SECOND)
    if number == 0:
        raise refusal
    return number


def parse_seed(text):
    refusal = UsageError(
        "--allocation-seed: '%s' is not a seed; give a whole number from 0 to "
        "2**64 - 1" % text)
    if not text:
        raise refusal
    largest = ~r_uint(0)
    number = r_uint(0)
    for char in text:
        digit = ord(char) - ord("0")
        if not 0 <= digit <= 9:
            raise refusal
        if number > (largest - r_uint(digit)) // r_uint(10):
            raise refusal
        number = number * r_uint(10) + r_uint(digit)
    return intmask(number)


def parse_period(text):
    try:
        period = string_to_float(text)
    except ParseStringError:
        period = 0.0
    # this way round, because text may be "nan"
    if not MIN_PERIOD <= period < MAX_PERIOD:
        raise UsageError(
            "--period: '%s' is not a period; give a number of seconds, at "
            "least 0.000001 and less than 1, for example 0.001" % text)
    return period


def parse_gaps(text):
    """Whether they are fixed."""
    if text == "fixed":
        return True
    if text == "exponential":
        return False
    raise UsageError("--allocation-gaps: '%s' is not known; give exponential "
                     "or fixed" % text)


def set_jit_parameters(text):
    try:
        jit.set_user_param(None, text)
    except ValueError:
        raise UsageError("--jit: '%s' is not understood; give off, default, or "
                         "name=value,... with names that RPython's JIT knows"
                         % text)


def parse(argv):
    """The Options that `argv`, without the program's own name, asks for.
    Sets the JIT's parameters.  Raises UsageError."""
    options = Options()
    only_allocations = ""
    only_profiles = ""
    position = 0
    while position < len(argv):
        flag = argv[position]
        if not flag.startswith("-"):
            break
        position += 1
        if flag == "--help":
            options.help = True
            return options
        if flag == "--no-lifetimes":
            options.lifetimes = False
            only_allocations = flag
            continue
        if flag == "--memory":
            options.memory = True
            only_profiles = flag
            continue
        if flag == "--native":
            options.native = True
            only_profiles = flag
            continue
        if flag not in ("--allocation-sampling", "--allocation-seed",
                        "--allocation-gaps", "--period", "-o", "--jit"):
            raise UsageError("unknown flag '%s'; guest --help shows them all"
                             % flag)
        if position == len(argv):
            raise UsageError("%s needs a value behind it; guest --help shows "
                             "which" % flag)
        value = argv[position]
        position += 1
        if flag == "--allocation-sampling":
            if value.startswith("auto"):
                options.per_second = parse_per_second(value)
                options.interval = FIRST_INTERVAL
            else:
                options.per_second = 0
                options.interval = parse_interval(value)
        elif flag == "--allocation-seed":
            options.seed = parse_seed(value)
            only_allocations = flag
        elif flag == "--allocation-gaps":
            options.fixed = parse_gaps(value)
            only_allocations = flag
        elif flag == "--period":
            options.period = parse_period(value)
        elif flag == "-o":
            if not value:
                raise UsageError("-o: the name of the file is empty; give one")
            options.output = value
            only_profiles = flag
        else:
            set_jit_parameters(value)
    if only_allocations and options.interval == 0:
        raise UsageError("%s needs --allocation-sampling BYTES"
                         % only_allocations)
    if options.fixed and options.per_second > 0:
        raise UsageError("--allocation-gaps: fixed ones can't follow a limit; "
                         "leave one of the two out")
    if only_profiles and not options.wants_profile():
        raise UsageError("%s needs --allocation-sampling BYTES or --period "
                         "SECONDS" % only_profiles)
    if position == len(argv):
        raise UsageError("there is no program to run; guest --help shows the "
                         "usage")
    options.program = argv[position]
    options.arguments = argv[position + 1:]
    if not options.output:
        options.output = "out.vmprof"
    return options
