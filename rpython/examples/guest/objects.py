"""The values of the language, and what its operators do with them."""
from rpython.rlib import jit
from rpython.rlib.rarithmetic import ovfcheck

from guest.errors import RunError


class W_Root(object):
    _attrs_ = []

    def kind(self):
        """What error messages call it."""
        raise NotImplementedError

    def to_text(self):
        raise NotImplementedError

    def is_same(self, w_other):
        return self is w_other

    def is_less(self, w_other):
        raise no_order(self, w_other)

    def add(self, w_other):
        raise refuse("+", self, w_other)

    def sub(self, w_other):
        raise refuse("-", self, w_other)

    def mul(self, w_other):
        raise refuse("*", self, w_other)

    def div(self, w_other):
        raise refuse("/", self, w_other)

    def mod(self, w_other):
        raise refuse("%", self, w_other)

    def xor(self, w_other):
        raise refuse("^", self, w_other)

    def negate(self):
        raise RunError("'-' needs an int, not %s" % self.kind())

    def is_true(self):
        raise RunError("a condition must be true or false, not %s"
                       % self.kind())

    def length(self):
        raise RunError("%s has no length" % self.kind())

    def item(self, w_index):
        raise RunError("%s has no items" % self.kind())

    def set_item(self, w_index, w_value):
        raise RunError("can't store items in %s" % self.kind())

    def append(self, w_value):
        raise RunError("can't append to %s" % self.kind())


@jit.dont_look_inside
def refuse(operator, w_left, w_right):
    return RunError("'%s' is not defined for %s and %s" % (
        operator, w_left.kind(), w_right.kind()))


@jit.dont_look_inside
def no_order(w_one, w_other):
    return RunError("%s and %s can't be ordered" % (
        w_one.kind(), w_other.kind()))


def check_index(w_index, length):
    if not isinstance(w_index, W_Int):
        raise RunError("an index must be int, not %s" % w_index.kind())
    index = w_index.value
    if not 0 <= index < length:
        raise RunError("index %d is out of range; the length is %d" % (
            index, length))
    return index


class W_None(W_Root):
    _attrs_ = []

    def kind(self):
        return "none"

    def to_text(self):
        return "none"


class W_Bool(W_Root):
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        self.value = value

    def kind(self):
        return "bool"

    def to_text(self):
        return "true" if self.value else "false"

    def is_true(self):
        return self.value


w_none = W_None()
w_true = W_Bool(True)
w_false = W_Bool(False)


def wrap_bool(value):
    return w_true if value else w_false


class W_Int(W_Root):
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        self.value = value

    def kind(self):
        return "int"

    def to_text(self):
        return str(self.value)

    def is_same(self, w_other):
        return isinstance(w_other, W_Int) and self.value == w_other.value

    def is_less(self, w_other):
        if not isinstance(w_other, W_Int):
            raise no_order(self, w_other)
        return self.value < w_other.value

    def add(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("+", self, w_other)
        try:
            return W_Int(ovfcheck(self.value + w_other.value))
        except OverflowError:
            raise too_large("+")

    def sub(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("-", self, w_other)
        try:
            return W_Int(ovfcheck(self.value - w_other.value))
        except OverflowError:
            raise too_large("-")

    def mul(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("*", self, w_other)
        try:
            return W_Int(ovfcheck(self.value * w_other.value))
        except OverflowError:
            raise too_large("*")

    def div(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("/", self, w_other)
        if w_other.value == 0:
            raise RunError("division by zero")
        try:
            return W_Int(ovfcheck(self.value // w_other.value))
        except OverflowError:
            raise too_large("/")

    def mod(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("%", self, w_other)
        if w_other.value == 0:
            raise RunError("division by zero")
        if w_other.value == -1:
            # the processor's division has no result for -2**63 and -1
            return W_Int(0)
        return W_Int(self.value % w_other.value)

    def xor(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("^", self, w_other)
        return W_Int(self.value ^ w_other.value)

    def negate(self):
        try:
            return W_Int(ovfcheck(-self.value))
        except OverflowError:
            raise too_large("-")


def too_large(operator):
    return RunError("integer overflow: the result of '%s' doesn't fit into 64 "
                    "bits" % operator)


class W_String(W_Root):
    _attrs_ = _immutable_fields_ = ["value"]

    def __init__(self, value):
        self.value = value

    def kind(self):
        return "string"

    def to_text(self):
        return self.value

    def is_same(self, w_other):
        return isinstance(w_other, W_String) and self.value == w_other.value

    def is_less(self, w_other):
        if not isinstance(w_other, W_String):
            raise no_order(self, w_other)
        return self.value < w_other.value

    def add(self, w_other):
        if not isinstance(w_other, W_String):
            raise refuse("+", self, w_other)
        return W_String(self.value + w_other.value)

    def mul(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("*", self, w_other)
        return W_String(self.value * w_other.value)

    def length(self):
        return len(self.value)

    def item(self, w_index):
        return W_String(self.value[check_index(w_index, len(self.value))])


class W_List(W_Root):
    _attrs_ = ["items"]

    def __init__(self, items):
        self.items = items

    def kind(self):
        return "list"

    def to_text(self):
        # not the items: a list may hold itself
        return "<list of %d>" % len(self.items)

    def mul(self, w_other):
        if not isinstance(w_other, W_Int):
            raise refuse("*", self, w_other)
        return W_List(self.items * w_other.value)

    def length(self):
        return len(self.items)

    def item(self, w_index):
        return self.items[check_index(w_index, len(self.items))]

    def set_item(self, w_index, w_value):
        self.items[check_index(w_index, len(self.items))] = w_value

    def append(self, w_value):
        self.items.append(w_value)


class Class(object):
    """Classes are no values: programs only name them."""
    _immutable_fields_ = ["name", "number", "size"]

    def __init__(self, name, number, fields, methods):
        """`number`: of the program's classes, from 0 on; `fields` and `methods`
        map names to slots and to Codes, those of the base class included."""
        self.name = name
        self.number = number
        self.size = len(fields)
        self.fields = fields
        self.methods = methods

    # elidable: both dictionaries are complete before the program runs

    @jit.elidable
    def find_field(self, name):
        """The slot of the field; -1: there is none."""
        return self.fields.get(name, -1)

    @jit.elidable
    def find_method(self, name):
        """The Code of the method; None: there is none."""
        return self.methods.get(name, None)


class W_Object(W_Root):
    _attrs_ = _immutable_fields_ = ["class_", "slots"]

    def __init__(self, class_, slots):
        self.class_ = class_
        # fixed size, so that it is one GC object and not two
        self.slots = slots

    def kind(self):
        return self.class_.name

    def to_text(self):
        return "<%s>" % self.class_.name


def _slot(w_object, name):
    class_ = jit.promote(w_object.class_)
    slot = class_.find_field(name)
    if slot < 0:
        raise RunError("%s has no field '%s'" % (class_.name, name))
    return slot


def get_field(w_value, name):
    if not isinstance(w_value, W_Object):
        raise RunError("%s has no field '%s'" % (w_value.kind(), name))
    return w_value.slots[_slot(w_value, name)]


def set_field(w_value, name, w_new):
    if not isinstance(w_value, W_Object):
        raise RunError("%s has no field '%s'" % (w_value.kind(), name))
    w_value.slots[_slot(w_value, name)] = w_new


def find_method(w_value, name):
    if isinstance(w_value, W_Object):
        code = jit.promote(w_value.class_).find_method(name)
        if code is not None:
            return code
    raise RunError("%s has no method '%s'" % (w_value.kind(), name))
