"""The values of the language, and how a program ends early."""
from rpython.rlib import jit
from rpython.rlib.rarithmetic import string_to_int
from rpython.rlib.rstring import ParseStringError, ParseStringOverflowError


class UsageError(Exception):
    """The command line or the program's text is wrong; nothing has run."""

    def __init__(self, message):
        self.message = message


class RunError(Exception):
    """The program did something that it can't do."""

    # operations don't know where; the interpreter's loop does
    where = ""

    def __init__(self, message):
        self.message = message


class W_Root(object):
    """All values; one of no other class is nil."""
    _attrs_ = []

    def text(self):
        return "nil"

    def is_same(self, w_other):
        return self is w_other


class W_Int(W_Root):
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        self.value = value

    def text(self):
        return str(self.value)

    def is_same(self, w_other):
        return isinstance(w_other, W_Int) and self.value == w_other.value


class W_String(W_Root):
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        self.value = value

    def text(self):
        return self.value


class W_List(W_Root):
    _attrs_ = ["items"]

    def __init__(self, items):
        self.items = items

    def text(self):
        return "".join([w_item.text() for w_item in self.items])

    def check(self, index):
        if not 0 <= index < len(self.items):
            raise RunError("there is no item %d of %d" % (index, len(self.items)))


class W_Class(W_Root):
    """Programs only name it: none of their values is one."""
    _attrs_ = _immutable_fields_ = ["name", "number", "fields", "size"]

    def __init__(self, name, number, fields):
        self.name = name
        # from 1 on
        self.number = number
        # slots by name
        self.fields = fields
        # for the JIT, to which it is a constant
        self.size = len(fields)

    @jit.elidable
    def slot(self, name):
        return self.fields.get(name, -1)


class W_Object(W_Root):
    _attrs_ = _immutable_fields_ = ["class_", "slots"]

    def __init__(self, class_, slots):
        self.class_ = class_
        # fixed size, so that it is one GC object and not two
        self.slots = slots

    def text(self):
        return "<%s>" % self.class_.name

    def slot(self, w_name):
        slot = jit.promote(self.class_).slot(w_name.text())
        if slot < 0:
            raise RunError("%s has no field '%s'" % (self.text(), w_name.text()))
        return slot


w_nil = W_Root()


def parse_int(text):
    """Raises ValueError."""
    try:
        return string_to_int(text)
    except (ParseStringError, ParseStringOverflowError):
        raise ValueError
