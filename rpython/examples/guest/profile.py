"""The profile of one run: all that knows rvmprof's interface for it."""
import os

from rpython.rlib import rvmprof

from guest.errors import UsageError

LAST_STANDARD_STREAM = 2


class Profile(object):
    def __init__(self, options):
        self.options = options
        self.fd = -1

    def start(self):
        """Begin to sample if the options ask for it.  Raises UsageError."""
        options = self.options
        if not options.wants_profile():
            return
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
            # native frames are not recorded: those of a translated program
            # say nothing about the guest program
            rvmprof.enable(
                fd, options.period, memory=int(options.memory), native=0,
                real_time=0, allocation_interval=options.interval,
                allocation_seed=options.seed, allocation_fixed=options.fixed,
                allocation_per_second=options.per_second)
        except rvmprof.VMProfError as e:
            os.close(fd)
            raise UsageError("can't start the profile: %s" % e.msg)
        self.fd = fd

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
