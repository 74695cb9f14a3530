class ProgramError(Exception):
    """The text of the program is wrong; nothing of it has run."""

    def __init__(self, message, line):
        self.message = message
        self.line = line

    def describe(self, filename):
        return "%s:%d: %s" % (filename, self.line, self.message)


class RunError(Exception):
    """The program did something that it can't do."""

    def __init__(self, message):
        self.message = message
        # operations don't know where they are; the interpreter's loop adds it
        self.line = 0
        self.function = ""
        self.filename = ""

    def describe(self):
        return "%s:%d: in %s: %s" % (self.filename, self.line, self.function,
                                     self.message)


class UsageError(Exception):
    """The command line asks for something that can't be done."""

    def __init__(self, message):
        self.message = message
