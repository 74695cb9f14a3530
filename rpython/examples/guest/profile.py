"""The profile of one run: all that knows rvmprof's interface for it."""
import os
import time

from rpython.rlib import jit, rdynload, rgc, rvmprof
from rpython.rlib.rstring import assert_str0
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, rffi

from guest.errors import RunError, UsageError
from guest.objects import W_Object

LAST_STANDARD_STREAM = 2

# what rvmprof loads, and one of the functions that it looks for there
LIBUNWIND = "libunwind.so"
UNWIND_STEP = "_ULx86_64_step"


def check_libunwind():
    """Raises UsageError if there is none: rvmprof would go on without native
    frames."""
    why = ""
    with rffi.scoped_str2charp(LIBUNWIND) as name:
        try:
            handle = rdynload.dlopen(name)
        except rdynload.DLOpenError as e:
            why = e.msg
        else:
            try:
                rdynload.dlsym(handle, UNWIND_STEP)
            except KeyError:
                why = "%s has no %s" % (LIBUNWIND, UNWIND_STEP)
            rdynload.dlclose(handle)
    if why:
        raise UsageError("--native: libunwind can't be loaded: %s; install it "
                         "(Debian's package: libunwind-dev), or leave --native "
                         "out" % why)


@rgc.no_collect
def class_of(address):
    """Called by the GC, for an object of any type."""
    w_object = rgc.try_cast_gcref_to_instance(
        W_Object, llmemory.cast_adr_to_ptr(address, llmemory.GCREF))
    if w_object is None:
        return 0
    class_ = w_object.class_
    # one that was just born has none; but RPython believes what __init__ says
    if not rgc.cast_instance_to_gcref(class_):
        return 0
    return class_.number + 1


class Current(object):
    profile = None      # the one that is being written


current = Current()


@jit.dont_look_inside
def rotate(path):
    """Does nothing if there is no profile."""
    if current.profile is not None:
        current.profile.rotate(path)


class Profile(object):
    def __init__(self, options):
        self.options = options
        self.fd = -1
        self.part = 1
        # digits that no other run has
        self.run = "%d%d" % (os.getpid(), int(time.time() * 1e6))

    def start(self, program):
        """Begin to sample if the options ask for it.  Raises UsageError."""
        options = self.options
        if not options.wants_profile():
            return
        if options.native:
            check_libunwind()
        try:
            fd = os.open(options.output,
                         os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as e:
            raise UsageError(
                "can't write the profile to '%s': %s; choose another file "
                "with -o" % (options.output, os.strerror(e.errno)))
        if fd <= LAST_STANDARD_STREAM:
            # what the program prints would end up in the profile
            os.close(fd)
            raise UsageError(
                "can't write a profile while stdin, stdout or stderr is "
                "closed; redirect it to /dev/null")
        try:
            # native frames only on demand: those of a translated program say
            # little about the guest program
            rvmprof.enable(
                fd, options.period, memory=int(options.memory),
                native=int(options.native), real_time=0,
                allocation_interval=options.interval,
                allocation_seed=options.seed, allocation_fixed=options.fixed,
                allocation_per_second=options.per_second,
                allocation_lifetimes=options.lifetimes,
                allocation_class_of=llhelper(rgc.ALLOCATION_CLASS, class_of),
                allocation_settings="run=" + self.run)
        except rvmprof.VMProfError as e:
            os.close(fd)
            raise UsageError("can't start the profile: %s" % e.msg)
        self.fd = fd
        current.profile = self
        for class_ in program.classes:
            rvmprof.name_class(class_.number + 1, class_.name)

    def rotate(self, path):
        """The profile ends, and the next one begins.  Raises RunError."""
        if "\0" in path:
            raise RunError("rotate(): there is a zero in the name '%s'" % path)
        try:
            fd = os.open(assert_str0(path),
                         os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        except OSError as e:
            raise RunError("rotate(): can't write the profile to '%s': %s" % (
                path, os.strerror(e.errno)))
        self.part += 1
        try:
            why = rvmprof.rotate_allocations(
                fd, "run=%s;part=%d" % (self.run, self.part))
        except rvmprof.VMProfError as e:
            os.close(fd)
            raise RunError("rotate(): can't go on in '%s': %s" % (path, e.msg))
        os.close(self.fd)
        self.fd = fd
        self.options.output = path
        if why:
            raise RunError("rotate(): the profile before '%s' is not complete: "
                           "%s" % (path, why))

    def stop(self):
        """End what start() began; what to tell the user, or nothing."""
        if self.fd < 0:
            return ""
        try:
            rvmprof.disable()
        except rvmprof.VMProfError as e:
            return "the profile '%s' is not complete: %s" % (
                self.options.output, e.msg)
        finally:
            os.close(self.fd)
            self.fd = -1
        return "the profile is in '%s'" % self.options.output
