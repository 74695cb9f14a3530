from rpython.rlib import jit, rstackovf, rvmprof
from rpython.rlib.objectmodel import specialize

from guest import bytecode
from guest.builtins import BUILTINS
from guest.errors import RunError
from guest.objects import (
    W_List,
    W_Object,
    W_String,
    find_method,
    get_field,
    set_field,
    w_none,
    wrap_bool,
)

# what step() returns when the result of the call is on the stack
ENDED = -1


def get_unique_id(pc, code):
    return rvmprof.get_unique_id(code)


def get_printable_location(pc, code):
    return "%s:%d %s %s" % (code.filename, code.lines[pc], code.name,
                            bytecode.NAMES[code.words[pc]])


driver = jit.JitDriver(
    greens=["pc", "code"], reds=["frame"], virtualizables=["frame"],
    is_recursive=True, get_unique_id=get_unique_id,
    get_printable_location=get_printable_location)


class Frame(object):
    """The variables of a call, and above them the values in use."""
    _virtualizable_ = ["stack[*]", "top"]

    def __init__(self, code):
        self = jit.hint(self, access_directly=True, fresh_virtualizable=True)
        variables = len(code.variables)
        self.stack = [None] * (variables + code.depth)
        self.top = variables

    def push(self, w_value):
        top = self.top
        assert top >= 0
        self.stack[top] = w_value
        self.top = top + 1

    def pop(self):
        top = self.top - 1
        assert top >= 0
        self.top = top
        w_value = self.stack[top]
        # else it would live as long as the frame
        self.stack[top] = None
        return w_value

    def peek(self, below):
        index = self.top - 1 - below
        assert index >= 0
        return self.stack[index]


@specialize.call_location()
@jit.unroll_safe
def pop_values(frame, count, size):
    """A list of `size`: what the `count` topmost are, and nones.

    A copy for each caller: a list that is never resized is one GC object,
    others are two.
    """
    values = [w_none] * size
    index = count - 1
    while index >= 0:
        values[index] = frame.pop()
        index -= 1
    return values


@jit.unroll_safe
def call(frame, code):
    callee = Frame(code)
    pass_arguments(frame, callee, code.arity)
    return execute(callee, code)


@jit.unroll_safe
def pass_arguments(frame, callee, count):
    callee = jit.hint(callee, access_directly=True)
    index = count - 1
    while index >= 0:
        w_value = frame.pop()
        callee.stack[index] = w_value
        index -= 1


@rvmprof.vmprof_execute_code("guest", lambda frame, code: code)
def execute(frame, code):
    return dispatch(frame, code)


@jit.dont_look_inside
def locate(error, code, pc):
    """The innermost function is the one to name."""
    if error.line == 0:
        error.line = code.lines[pc]
        error.function = code.name
        error.filename = code.filename
    return error


def dispatch(frame, code):
    frame = jit.hint(frame, access_directly=True)
    pc = 0
    while True:
        driver.jit_merge_point(pc=pc, code=code, frame=frame)
        try:
            following = step(frame, code, pc)
        except RunError as e:
            raise locate(e, code, pc)
        except rstackovf.StackOverflow:
            rstackovf.check_stack_overflow()
            raise locate(RunError("the calls are nested too deeply"), code, pc)
        except MemoryError:
            raise locate(RunError("out of memory"), code, pc)
        if following == ENDED:
            return frame.pop()
        is_loop = following < pc
        pc = following
        if is_loop:
            driver.can_enter_jit(pc=pc, code=code, frame=frame)


def step(frame, code, pc):
    """Execute the instruction at `pc`; the position of the next one.

    A function of its own, because inside of a try block every item of a list
    would be checked for IndexErrors.
    """
    words = code.words
    opcode = words[pc]
    if opcode == bytecode.CONSTANT:
        frame.push(code.constants[words[pc + 1]])
        return pc + 2
    if opcode == bytecode.LOAD:
        slot = words[pc + 1]
        assert slot >= 0
        w_value = frame.stack[slot]
        if w_value is None:
            raise RunError("'%s' has no value yet" % code.variables[slot])
        frame.push(w_value)
        return pc + 2
    if opcode == bytecode.STORE:
        slot = words[pc + 1]
        assert slot >= 0
        # not in one line: the JIT can't hold the array in a variable
        w_value = frame.pop()
        frame.stack[slot] = w_value
        return pc + 2
    if opcode == bytecode.DISCARD:
        frame.pop()
        return pc + 1
    if opcode == bytecode.ADD:
        w_right = frame.pop()
        frame.push(frame.pop().add(w_right))
        return pc + 1
    if opcode == bytecode.SUB:
        w_right = frame.pop()
        frame.push(frame.pop().sub(w_right))
        return pc + 1
    if opcode == bytecode.MUL:
        w_right = frame.pop()
        frame.push(frame.pop().mul(w_right))
        return pc + 1
    if opcode == bytecode.DIV:
        w_right = frame.pop()
        frame.push(frame.pop().div(w_right))
        return pc + 1
    if opcode == bytecode.MOD:
        w_right = frame.pop()
        frame.push(frame.pop().mod(w_right))
        return pc + 1
    if opcode == bytecode.XOR:
        w_right = frame.pop()
        frame.push(frame.pop().xor(w_right))
        return pc + 1
    if opcode == bytecode.EQUAL:
        w_right = frame.pop()
        frame.push(wrap_bool(frame.pop().is_same(w_right)))
        return pc + 1
    if opcode == bytecode.DIFFERENT:
        w_right = frame.pop()
        frame.push(wrap_bool(not frame.pop().is_same(w_right)))
        return pc + 1
    if opcode == bytecode.LESS:
        w_right = frame.pop()
        frame.push(wrap_bool(frame.pop().is_less(w_right)))
        return pc + 1
    if opcode == bytecode.AT_MOST:
        w_right = frame.pop()
        frame.push(wrap_bool(not w_right.is_less(frame.pop())))
        return pc + 1
    if opcode == bytecode.GREATER:
        w_right = frame.pop()
        frame.push(wrap_bool(w_right.is_less(frame.pop())))
        return pc + 1
    if opcode == bytecode.AT_LEAST:
        w_right = frame.pop()
        frame.push(wrap_bool(not frame.pop().is_less(w_right)))
        return pc + 1
    if opcode == bytecode.NEGATE:
        frame.push(frame.pop().negate())
        return pc + 1
    if opcode == bytecode.NOT:
        frame.push(wrap_bool(not frame.pop().is_true()))
        return pc + 1
    if opcode == bytecode.JUMP:
        return words[pc + 1]
    if opcode == bytecode.JUMP_IF_FALSE:
        if frame.pop().is_true():
            return pc + 2
        return words[pc + 1]
    if opcode == bytecode.JUMP_IF_TRUE:
        if frame.pop().is_true():
            return words[pc + 1]
        return pc + 2
    if opcode == bytecode.ITEMS:
        count = words[pc + 1]
        frame.push(W_List(pop_values(frame, count, count)))
        return pc + 2
    if opcode == bytecode.ITEM:
        w_index = frame.pop()
        frame.push(frame.pop().item(w_index))
        return pc + 1
    if opcode == bytecode.SET_ITEM:
        w_value = frame.pop()
        w_index = frame.pop()
        frame.pop().set_item(w_index, w_value)
        return pc + 1
    if opcode == bytecode.FIELD:
        name = code.names[words[pc + 1]]
        frame.push(get_field(frame.pop(), name))
        return pc + 2
    if opcode == bytecode.SET_FIELD:
        name = code.names[words[pc + 1]]
        w_value = frame.pop()
        set_field(frame.pop(), name, w_value)
        return pc + 2
    if opcode == bytecode.NEW:
        class_ = code.program.classes[words[pc + 1]]
        slots = pop_values(frame, words[pc + 2], class_.size)
        frame.push(W_Object(class_, slots))
        return pc + 3
    if opcode == bytecode.CALL:
        callee = code.program.functions[words[pc + 1]]
        frame.push(call(frame, callee))
        return pc + 2
    if opcode == bytecode.CALL_METHOD:
        name = code.names[words[pc + 1]]
        count = words[pc + 2]
        w_receiver = frame.peek(count)
        callee = find_method(w_receiver, name)
        if callee.arity != count + 1:
            raise RunError("%s() takes %d argument(s), not %d" % (
                callee.name, callee.arity - 1, count))
        frame.push(call(frame, callee))
        return pc + 3
    if opcode == bytecode.CALL_BUILTIN:
        builtin = jit.promote(BUILTINS[words[pc + 1]])
        arguments = pop_values(frame, builtin.arity, builtin.arity)
        frame.push(builtin.call(arguments))
        return pc + 2
    assert opcode == bytecode.RETURN
    return ENDED


def run(program, arguments):
    """Call the main function.  Raises RunError."""
    frame = Frame(program.main)
    frame.stack[0] = W_List([W_String(argument) for argument in arguments])
    execute(frame, program.main)
