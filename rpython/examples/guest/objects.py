"""The values of the language, and the errors that end a program."""
from rpython.rlib import jit
from rpython.rlib.rarithmetic import string_to_int
from rpython.rlib.rstring import ParseStringError, ParseStringOverflowError


class UsageError(Exception):
    """An error in the command line or the program's text, before the program runs."""

    def __init__(self, message):
        """Take the message for the user."""
        self.message = message


class RunError(Exception):
    """An error of an operation, which ends the program."""

    # the text that names the function with the error; the interpreter's loop adds it
    where = ""

    def __init__(self, message):
        """Take the message for the user."""
        self.message = message


class W_Root(object):
    """Base class of all values, and the class of nil."""
    _attrs_ = []

    def text(self):
        """Return the text that `print` writes."""
        return "nil"

    def is_same(self, w_other):
        """Return the result of `==` in the language."""
        return self is w_other


class W_Int(W_Root):
    """An integer of 64 bits."""
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        """Take the value."""
        self.value = value

    def text(self):
        """Return the text that `print` writes."""
        return str(self.value)

    def is_same(self, w_other):
        """Return the result of `==`."""
        return isinstance(w_other, W_Int) and self.value == w_other.value


class W_String(W_Root):
    """A string."""
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        """Take the value."""
        self.value = value

    def text(self):
        """Return the text that `print` writes."""
        return self.value


class W_List(W_Root):
    """A list of values."""
    _attrs_ = ["items"]

    def __init__(self, items):
        """Take the items."""
        self.items = items

    def text(self):
        """Return the text that `print` writes."""
        return "".join([w_item.text() for w_item in self.items])

    def check(self, index):
        """Raise RunError if an index is out of range."""
        if not 0 <= index < len(self.items):
            raise RunError("there is no item %d of %d" % (index, len(self.items)))


class W_Class(W_Root):
    """A class, which functions refer to as a constant, but which is no value."""
    _attrs_ = _immutable_fields_ = ["name", "number", "fields", "size"]

    def __init__(self, name, number, fields):
        """Take the name, a number from 1 on, and the slots of the fields by name."""
        self.name = name
        self.number = number
        self.fields = fields
        # an immutable attribute, so that the size is a constant for the JIT
        self.size = len(fields)

    @jit.elidable
    def slot(self, name):
        """Return the slot of a field, or -1 if there is no such field."""
        return self.fields.get(name, -1)


class W_Object(W_Root):
    """An instance of a class."""
    _attrs_ = _immutable_fields_ = ["class_", "slots"]

    def __init__(self, class_, slots):
        """Take the class, and the values of the fields."""
        self.class_ = class_
        # a list that is never resized, so that it is a single GC object
        self.slots = slots

    def text(self):
        """Return the text that `print` writes."""
        return "<%s>" % self.class_.name

    def slot(self, w_name):
        """Return the slot of a field.  Raises RunError."""
        slot = jit.promote(self.class_).slot(w_name.text())
        if slot < 0:
            raise RunError("%s has no field '%s'" % (self.text(), w_name.text()))
        return slot


w_nil = W_Root()


def parse_int(text):
    """Return the integer of a text.  Raises ValueError."""
    try:
        return string_to_int(text)
    except (ParseStringError, ParseStringOverflowError):
        raise ValueError
