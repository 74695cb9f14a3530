"""Start of the sampling, with help of the package of the same name for Python 3.

Runs on PyPy 2.7.  `pypy -m vmprof --allocation-sampling 128k app.py` becomes a Python 3
by exec.  Python 3 parses the arguments, finds the layout of this build, and becomes the
PyPy that runs the program, with the settings in an environment variable
(vmprof_allocation/launch/python2.py and begin.py there).  vmprof_allocation.pth calls
hand_over() at the first start of PyPy, and begin() at the second.
"""
import atexit
import os
import subprocess
import sys

from vmprof_allocation import choose
from vmprof_allocation.process import Refused

VARIABLE = "VMPROF_ALLOCATION"
#: environment variable with the path of a Python 3 that has vmprof-allocation
PYTHON3 = "VMPROF_ALLOCATION_PYTHON3"
MODULE = "vmprof_allocation.launch.python2"
EXIT_BAD_INPUT = 2
#: names of the fields of launch/begin.py in their order; the last two are free text
FIELDS = "pid", "held", "jitlog", "settings", "knowledge", "output"


def say(message):
    """Print a message to stderr."""
    sys.stderr.write("vmprof: %s\n" % message)


def python3():
    """Return the command of a Python 3 that has our package.  Raises Refused."""
    named = os.environ.get(PYTHON3)
    tried = [named] if named else [
        os.path.join(folder, name) for name in ("pypy3", "python3")
        for folder in os.environ.get("PATH", os.defpath).split(os.pathsep)]
    for path in tried:
        # isolated, because PYTHONPATH and the working directory belong to the program
        command = [path, "-I"]
        with open(os.devnull, "r+") as null:
            try:
                if not subprocess.call(command + ["-c", "import " + MODULE],
                                       stdin=null, stdout=null, stderr=null):
                    return command
            except EnvironmentError:
                pass            # the program is missing or not executable
    raise Refused(
        "%s has no vmprof-allocation. Install it there, or set the variable to another "
        "Python 3"
        % named if named else
        "sampling PyPy 2.7 needs a pypy3 on PATH that has vmprof-allocation. Install "
        "it with pypy3 -m pip install vmprof-allocation, or set %s to the path of a "
        "Python 3 that has it"
        % PYTHON3)


def _command_line():
    with open("/proc/self/cmdline") as file:
        return file.read()[:-1].split("\0")


def hand_over():
    """Become a Python 3 that starts the program, by exec.

    Returns, and does nothing, if the command line is not `-m vmprof`.
    """
    try:
        try:
            line = _command_line()
        except EnvironmentError:
            raise Refused("cannot read PyPy's command line from /proc/self/cmdline. "
                          "Check that /proc is mounted")
        behind = line[len(line) - len(sys.argv):]
        if not behind or not (
                (behind[0].startswith("-") and behind[0].endswith("mvmprof"))
                or (behind[0] == "vmprof" and line[-len(behind) - 1][:1] == "-"
                and line[-len(behind) - 1].endswith("m"))):
            return
        command = python3() + ["-m", MODULE, "run", choose.library(),
                               sys.executable, str(len(behind) - 1)] + line
        os.execv(command[0], command)
    except Refused as e:
        _refuse(str(e))
    except EnvironmentError as e:
        _refuse("cannot start Python 3: %s" % e.strerror)


def settings(*arguments):
    """Return the fields of a run in this process, by name, from Python 3's package.

    Args:
        *arguments: the arguments of sample() except for the output.

    Raises:
        Refused: an argument is invalid, or this PyPy cannot be sampled.
    """
    command = python3() + ["-m", MODULE, "settings", choose.library()] + [
        "" if argument is None else str(argument) for argument in arguments]
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE)
        out, error = process.communicate()
    except EnvironmentError as e:
        raise Refused("cannot start %s: %s" % (command[0], e.strerror))
    if process.returncode:
        raise Refused(error.strip().split("\n")[-1].replace("vmprof: ", "", 1))
    return dict(zip(FIELDS, out.split("\t", len(FIELDS) - 1)))


def begin():
    """Start to sample with the fields that Python 3 has put into the environment.

    Ends the process if this fails, so that the program does not run without sampling.
    """
    fields = dict(zip(FIELDS, os.environ.pop(VARIABLE).split(
        "\t", len(FIELDS) - 1)))
    if fields["pid"] != str(os.getpid()):
        return
    try:
        _Program(fields)
    except Refused as e:
        _refuse(str(e))
    except Exception as e:
        _refuse("cannot start the allocation sampling: %r" % (e,))


class _Program(object):
    """The run of a sampled program, which ends with the process."""

    def __init__(self, fields):
        self.run = choose.begin(fields, fields["output"])
        if int(fields["held"]) >= 0:
            os.close(int(fields["held"]))
        if int(fields["jitlog"]) >= 0:
            import _jitlog
            _jitlog.enable(int(fields["jitlog"]))
        # This function is registered first, and is therefore called last.
        atexit.register(self.end)

    def end(self):
        if os.getpid() != self.run.pid:
            return
        try:
            self.run.stop()
        except Refused as e:
            say(str(e))


def _refuse(message):
    say(message)
    # end the process here, because an exception would only end the import of `site`
    os._exit(EXIT_BAD_INPUT)
