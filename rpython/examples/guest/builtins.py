"""The functions that every program has."""
import os

from rpython.rlib import jit
from rpython.rlib.rarithmetic import string_to_int
from rpython.rlib.rstring import ParseStringError, ParseStringOverflowError

from guest.errors import RunError
from guest.objects import W_Int, W_String, w_none
from guest.profile import rotate

STDOUT = 1


class Builtin(object):
    _immutable_fields_ = ["name", "arity"]

    def __init__(self, name, arity):
        self.name = name
        self.arity = arity

    def call(self, arguments):
        raise NotImplementedError


class Append(Builtin):
    def call(self, arguments):
        arguments[0].append(arguments[1])
        return w_none


class Int(Builtin):
    def call(self, arguments):
        w_value = arguments[0]
        if isinstance(w_value, W_Int):
            return w_value
        if not isinstance(w_value, W_String):
            raise RunError("int() needs a string, not %s" % w_value.kind())
        try:
            return W_Int(string_to_int(w_value.value))
        except ParseStringOverflowError:
            raise RunError("int(): '%s' doesn't fit into 64 bits"
                           % w_value.value)
        except ParseStringError:
            raise RunError("int(): '%s' is not a decimal number"
                           % w_value.value)


class Len(Builtin):
    def call(self, arguments):
        return W_Int(arguments[0].length())


class Print(Builtin):
    def call(self, arguments):
        write(arguments[0].to_text() + "\n")
        return w_none


class Rotate(Builtin):
    def call(self, arguments):
        w_path = arguments[0]
        if not isinstance(w_path, W_String):
            raise RunError("rotate() needs a string, not %s" % w_path.kind())
        rotate(w_path.value)
        return w_none


class Str(Builtin):
    def call(self, arguments):
        return W_String(arguments[0].to_text())


@jit.dont_look_inside
def write(text):
    try:
        while text:
            written = os.write(STDOUT, text)
            assert written >= 0
            text = text[written:]
    except OSError as e:
        raise RunError("can't write the output: %s" % os.strerror(e.errno))


BUILTINS = [
    Append("append", 2), Int("int", 1), Len("len", 1), Print("print", 1),
    Rotate("rotate", 1), Str("str", 1),
]


def find(name):
    """The number of a builtin; -1: there is none of that name."""
    for number in range(len(BUILTINS)):
        if BUILTINS[number].name == name:
            return number
    return -1
