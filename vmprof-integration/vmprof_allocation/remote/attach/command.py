"""The command line of attach."""
from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from vmprof_allocation.engines.searching import choose_aloud
from vmprof_allocation.errors import AllocationSamplingError, say
from vmprof_allocation.remote import work_folder
from vmprof_allocation.remote.attach import programs
from vmprof_allocation.remote.attach.agent import (
    DONE,
    END,
    ERROR,
    HAS_GIL,
    HERE,
    STARTED,
    STOP,
    Agent,
)
from vmprof_allocation.remote.attach.target import Target, check_here, refusal
from vmprof_allocation.remote.attach.tracer import AGENT, Tracer
from vmprof_allocation.remote.process_info import (
    DEFAULT,
    Parser,
    add_sampling,
    check_file,
    check_seconds,
    children,
    family,
)
from vmprof_allocation.settings.parsing import check_output, make_settings, seconds
from vmprof_allocation.settings.settings import Settings

#: of a thread, before another one is tried
_MILLISECONDS = 100
#: a thread is made in a millisecond
_CALL_SECONDS = 10.0
#: how long a program without a lock stands still so that it can be taken, at most
_HELD_SECONDS = 1.0
#: between two looks at whether the library could be loaded
_LOOK_SECONDS = 0.02
#: before it is said what is waited for
_PATIENCE = 1.0
#: leaks need more samples: a share that a service can do without for a while
_FOR_LEAKS = "auto:5%"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m vmprof_allocation attach",
        description="Sample a program of PyPy that runs already, and report what it "
        "allocates. Run this with the program's own pypy3. Processes that it makes "
        "meanwhile are not followed.")
    parser.add_argument("pid", type=int, metavar="PID")
    parser.add_argument(
        "-d", "--duration", type=seconds, default=10.0, metavar="SECONDS",
        help="for so long, or until Ctrl-C (default: 10)")
    add_sampling(parser, default=None)
    parser.add_argument(
        "--leaks", action="store_true",
        help="report what grows. If no interval is given, the sampling may take 5%% of "
             "the time for it")
    parser.add_argument(
        "--children", action="store_true",
        help="and all that came of it, as workers do, into FILE's name with their PIDs")
    parser.add_argument(
        "-o", "--output", metavar="FILE",
        help="keep the profile; the program writes it, as its own user")
    parser.add_argument(
        "--timeout", type=seconds, default=30.0, metavar="SECONDS",
        help="give up if the sampling has not begun by then (default: 30)")
    parser.add_argument(
        "--despite-seccomp", action="store_true",
        help="also if system calls of the program are filtered that ours are not: a "
             "filter that kills would end it")
    return parser


def main(arguments: list[str]) -> int:
    args = _parser().parse_args(arguments)
    try:
        for name in "duration", "timeout":
            check_seconds(name, getattr(args, name))
        if args.leaks and args.no_lifetimes:
            raise AllocationSamplingError(
                "--leaks is about what stays alive; leave --no-lifetimes out")
        if args.allocation_sampling is None:
            args.allocation_sampling = _FOR_LEAKS if args.leaks else DEFAULT
        settings = make_settings(args.allocation_sampling,
                                 lifetimes=not args.no_lifetimes, follow=False)
        check_here()
        return _attach(args, settings)
    except AllocationSamplingError as e:
        print("vmprof_allocation: %s" % e, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        # the program goes on; the agent ends what was begun
        return 128 + signal.SIGINT


def _attach(args: argparse.Namespace, settings: Settings) -> int:
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if args.output is not None:
        check_file(os.path.abspath(check_output(args.output)))
    with contextlib.ExitStack() as stack:
        runs: list[_Run] = []
        begun = time.monotonic()
        are_all = True
        for pid in family(args.pid) if args.children else [args.pid]:
            try:
                runs.append(_begin_next(runs, pid, args, settings, stack))
            except AllocationSamplingError as e:
                if not args.children:
                    raise
                _say(str(e))
                are_all = False
        if not runs:
            raise AllocationSamplingError(
                "of process %d and its children none can be sampled" % args.pid)
        with _ending_early_at_ctrl_c(runs):
            _say_what_is_sampled(runs, args, time.monotonic() - begun)
            ended = wait_for_ends(runs)
            for why in ended:
                _say(why)
        code = _report([run.output for run in runs],
                       ["--leaks"] * args.leaks + ["--salvage"] * bool(ended))
        return code if are_all else 2


def _say_what_is_sampled(runs: list[_Run], args: argparse.Namespace, took: float
                         ) -> None:
    _say("sampling process%s %s for %g second%s; Ctrl-C ends it earlier" % (
        "es" * (len(runs) > 1), ", ".join(str(run.pid) for run in runs),
        args.duration, "s" * (args.duration != 1)))
    if not args.children and (workers := children(args.pid)):
        _say("its children are not sampled, which may be the ones that work (%s); "
             "--children samples them, too" % ", ".join(map(str, workers)))
    if took > args.duration / 10 and len(runs) > 1:
        _say("they began one after the other, in %.1f seconds: each is sampled for "
             "as long, and not at the same time" % took)


def _begin_next(runs: list[_Run], pid: int, args: argparse.Namespace,
                settings: Settings, stack: contextlib.ExitStack) -> _Run:
    """After `runs`, whose first one the others belong to."""
    target = Target(pid, args.despite_seccomp)
    folder = stack.enter_context(work_folder.own(target.uid, target.gid))
    if args.output is None:
        output = os.path.join(folder, "attached.vmprof")
    else:
        path, suffix = os.path.splitext(os.path.abspath(args.output))
        output = path + ".%d" % pid * bool(runs) + suffix
    check_file(output)
    return begin(target, folder, settings, output, args.duration, args.timeout, stack,
                 runs[0] if runs else None)


def begin(target: Target, folder: str, settings: Settings, output: str, duration: float,
          timeout: float, stack: contextlib.ExitStack, first: _Run | None = None
          ) -> _Run:
    """Sample `target`, from where to where the command line says; `stack` ends it if it
    is left before that.  `folder` is one that only it and we may look into; `first`:
    this is a child of that process, and their profiles are a run.

    Raises AllocationSamplingError.
    """
    tracer = Tracer()
    knowledge = choose_aloud(say).knowledge(folder)
    with contextlib.ExitStack() as own:
        agent = own.enter_context(Agent(target.pid, folder))
        for path in AGENT, folder:
            target.check_sees(path)
        run = _Run(target, agent, tracer, time.monotonic() + timeout, output)
        run.enter(duration, settings, knowledge,
                  (first.output, first.name, first.pid) if first is not None else ())
        run.wait_for_start()
        stack.push(own.pop_all())
        return run


@contextlib.contextmanager
def _ending_early_at_ctrl_c(runs: list[_Run]) -> Iterator[None]:
    """The first one ends the sampling, wherever it finds us: no report is lost to one
    that comes before we wait.  A second one ends this command."""
    before = signal.getsignal(signal.SIGINT)

    def end(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        for run in runs:
            run.stop()

    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for_ends(runs: list[_Run]) -> list[str]:
    """Returns why profiles may be shorter than was asked for, where they may."""
    return [why for run in runs if (why := run.wait_for_end())]


class _Run:
    def __init__(self, target: Target, agent: Agent, tracer: Tracer, deadline: float,
                 output: str):
        self.pid = target.pid
        self.output = output
        #: what the profiles of this run have in common, when it has begun
        self.name = ""
        self._target = target
        self._agent = agent
        self._tracer = tracer
        #: until when the stopped thread may stand still; 0: it does not
        self._held_until = 0.0
        #: for the start
        self._deadline = deadline
        self._has_gil = False

    def _left(self) -> float:
        return max(0.0, self._deadline - time.monotonic())

    def enter(self, duration: float, settings: Settings, knowledge: str,
              first: tuple[object, ...]) -> None:
        """Have the thread made, and give it its job.  `first`: of a process that began
        before, its profile, the run's name, and its number."""
        arguments = (self.output, knowledge, settings.text(), *first)
        self._stop_one()
        try:
            if not self._target.allocate[0]:
                self._leave()
            self._accept()
            kind, text = self._receive_here() or (END, "")
            self._check(kind, text)
            fd = int(text)
            self._agent.send_job(duration, programs.begin(fd, *arguments),
                                 programs.end(fd))
            if self._held_until:
                # it was stopped where it had most likely given the GIL away
                self._take_gil(self._held())
        finally:
            self._leave()
            self._agent.unmap()

    def _held(self) -> float:
        """The thread may stand still for so many seconds more."""
        return max(0.0, self._held_until - time.monotonic())

    def _leave(self) -> None:
        if self._held_until:
            self._held_until = 0.0
            self._tracer.leave()

    def _accept(self) -> None:
        deadline = time.monotonic() + _CALL_SECONDS
        while not self._agent.accept(_LOOK_SECONDS):
            if self._tracer.has_failed() or time.monotonic() > deadline:
                self._target.check_descriptors()
                raise AllocationSamplingError(
                    "process %d did not load %s; is it readable for user %d?"
                    % (self._target.pid, AGENT, self._target.uid))
            if not self._held():
                self._leave()

    def _receive_here(self) -> tuple[str, str] | None:
        message = self._agent.receive(self._held())
        if message is None:
            self._leave()
            message = self._agent.receive(_CALL_SECONDS)
        return message

    def _stop_one(self) -> None:
        """A thread that is where it can be stopped."""
        patience = time.monotonic() + _PATIENCE
        while True:
            for tid in self._target.threads():
                error = self._tracer.enter(self._target, tid, self._agent.path,
                                           _MILLISECONDS)
                if error == 0:
                    self._held_until = time.monotonic() + _HELD_SECONDS
                    return
                is_gone = error == errno.ESRCH and tid != self._target.pid
                if error != errno.EAGAIN and not is_gone:
                    raise AllocationSamplingError(refusal(self._target.pid, error))
            if self._left() == 0:
                raise AllocationSamplingError(
                    "process %d was not touched: no thread of it made a system call "
                    "at which it could be stopped; it only computes. Try again with "
                    "a longer --timeout, or start it with vmprof" % self._target.pid)
            if patience and time.monotonic() > patience:
                patience = 0.0
                _say("waiting until process %d makes a system call" % self._target.pid)

    def _take_gil(self, seconds: float) -> None:
        message = self._agent.receive(seconds)
        if message is not None:
            self._check(*message)
            self._has_gil = True

    def _check(self, kind: str, text: str) -> None:
        if kind == ERROR:
            raise AllocationSamplingError(
                "process %d can't be sampled: %s" % (self._target.pid, text))
        if kind not in (HERE, HAS_GIL, STARTED):
            raise AllocationSamplingError(
                "process %d has ended; nothing of it was sampled" % self._target.pid)

    def wait_for_start(self) -> None:
        if not self._has_gil:
            self._take_gil(min(_PATIENCE, self._left()))
        if not self._has_gil:
            _say("waiting until process %d gives Python's lock (the GIL) away%s" % (
                self._target.pid, "; it uses no threads, and only does so when it "
                "waits for something" if self._target.allocate[0] else ""))
            self._take_gil(self._left())
        if not self._has_gil:
            raise AllocationSamplingError(
                "process %d did not give Python's lock (the GIL) away; nothing of it "
                "was sampled. Try again with a longer --timeout" % self._target.pid)
        # imports, and what may be slow to be read
        message = self._agent.receive(self._left() + _CALL_SECONDS)
        if message is None:
            raise AllocationSamplingError(
                "the sampling of process %d did not begin in time; it ends when it "
                "does" % self._target.pid)
        self._check(*message)
        self.name = message[1]

    def stop(self) -> None:
        """Before its time."""
        self._agent.send(STOP)

    def wait_for_end(self) -> str:
        """Returns why the profile may be shorter than was asked for, or nothing."""
        kind, text = self._agent.receive(None) or (END, "")
        if kind in (DONE, ERROR):
            # until it has closed its side, nobody else may attach
            self._agent.receive(_CALL_SECONDS)
            return text if kind == ERROR else ""
        return "process %d has ended, and the profile with it" % self._target.pid


def _report(outputs: list[str], options: list[str]) -> int:
    there = [output for output in outputs
             if os.path.exists(output) and os.path.getsize(output)]
    if not there:
        raise AllocationSamplingError("there is no profile: the program removed it, or "
                                      "ended before it was begun")
    sys.stdout.flush()
    return subprocess.call(
        [sys.executable, "-m", "vmprof_allocation", "report", *options, *there])


def _say(message: str) -> None:
    print("vmprof_allocation: %s" % message, file=sys.stderr, flush=True)
