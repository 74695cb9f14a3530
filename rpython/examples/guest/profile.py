"""The profile of a run.  Only this module starts, rotates and ends the profile."""
import os
import time

from rpython.rlib import jit, rdynload, rgc, rvmprof
from rpython.rlib.rstring import assert_str0
from rpython.rtyper.annlowlevel import llhelper
from rpython.rtyper.lltypesystem import llmemory, rffi

from guest.objects import RunError, UsageError, W_Object


def check_libunwind():
    """Raise UsageError if rvmprof cannot use libunwind.

    Without this check, rvmprof would continue without native frames.
    """
    why = ""
    try:
        with rffi.scoped_str2charp("libunwind.so") as name:
            handle = rdynload.dlopen(name)
        rdynload.dlsym(handle, "_ULx86_64_step")
        rdynload.dlclose(handle)
    except rdynload.DLOpenError as e:
        why = e.msg
    except KeyError:
        why = "libunwind.so has no _ULx86_64_step"
    if why:
        raise UsageError("--native: libunwind can't be loaded: %s; install it "
                         "(Debian's package: libunwind-dev)" % why)


@rgc.no_collect
def class_of(address):
    """Return the number of an object's class, or 0 if it has no class.

    rvmprof calls this function in the middle of a collection, for objects of any type.
    """
    w_object = rgc.try_cast_gcref_to_instance(
        W_Object, llmemory.cast_adr_to_ptr(address, llmemory.GCREF))
    if w_object is None:
        return 0
    class_ = w_object.class_
    # The class of a new object may be NULL before its __init__().  RPython would
    # remove the test 'class_ is None', because __init__() always sets a class.
    if not rgc.cast_instance_to_gcref(class_):
        return 0
    return class_.number


def create(path):
    """Open a new file, and return its descriptor.  Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)


class Profile(object):
    """The profile of the process, before start() and after stop() without a file."""
    fd = -1         # -1 if there is no profile
    path = ""
    part = 1
    run = ""

    def start(self, options, classes):
        """Start a profile with the samples that the options request, if any.

        Raises UsageError.  'classes' are the classes of the program.
        """
        if options.interval == 0 and options.period == 0.0:
            return
        if options.native:
            check_libunwind()
        try:
            fd = create(options.output)
        except OSError as e:
            raise UsageError("can't write the profile to '%s': %s" % (
                options.output, os.strerror(e.errno)))
        # a number that no other run has
        self.run = "%d%d" % (os.getpid(), int(time.time() * 1e6))
        try:
            if fd <= 2:
                # the output of the program would be written to the profile
                raise UsageError("can't write a profile while stdin, stdout or stderr "
                                 "is closed; redirect it to /dev/null")
            rvmprof.enable(
                fd, options.period, memory=int(options.memory),
                native=int(options.native), real_time=0,
                allocations=options.allocations(self.run),
                class_of=llhelper(rvmprof.CLASS_OF, class_of))
        except rvmprof.VMProfError as e:
            raise UsageError("can't start the profile: %s" % e.msg)
        self.fd = fd
        self.path = options.output
        for class_ in classes:
            rvmprof.name_class(class_.number, class_.name)

    @jit.dont_look_inside
    def rotate(self, path):
        """End the segment of the profile, and begin the next one in another file.

        Does nothing without a profile.  Raises RunError.
        """
        if self.fd < 0:
            return
        try:
            fd = create(assert_str0(path))
        except OSError as e:
            raise RunError("rotate: can't write the profile to '%s': %s" % (
                path, os.strerror(e.errno)))
        self.part += 1
        try:
            why = rvmprof.rotate_allocations(
                fd, "run=%s;part=%d" % (self.run, self.part))
        except rvmprof.VMProfError as e:
            os.close(fd)
            raise RunError("rotate: can't go on in '%s': %s" % (path, e.msg))
        os.close(self.fd)
        self.fd = fd
        self.path = path
        if why:
            raise RunError("rotate: the profile before '%s' is not complete: %s"
                           % (path, why))

    def stop(self):
        """End the profile.  Return a message for the user, or an empty string."""
        if self.fd < 0:
            return ""
        try:
            rvmprof.disable()
        except rvmprof.VMProfError as e:
            return "the profile '%s' is not complete: %s" % (self.path, e.msg)
        finally:
            os.close(self.fd)
        return "the profile is in '%s'" % self.path


profile = Profile()
