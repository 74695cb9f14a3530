"""Functions, their frames, and the interpreter loop, which the JIT traces."""
import os

from rpython.rlib import jit, rstackovf, rvmprof
from rpython.rlib.objectmodel import specialize
from rpython.rlib.rarithmetic import intmask

from guest.objects import RunError, W_Class, W_Int, W_List, W_Object, W_Root, w_nil
from guest.profile import profile

# The operators of the language, with their numbers of operands.  Their instructions
# come first; then follow the instructions that the reader emits for other forms.
OPERATORS = [
    ("+", 2), ("-", 2), ("*", 2), ("/", 2), ("%", 2), ("<", 2), ("==", 2),
    ("not", 1), ("len", 1), ("at", 2), ("put", 3), ("append", 2), ("array", 2),
    ("print", 1), ("rotate", 1)]
(ADD, SUB, MUL, DIV, MOD, LESS, SAME, NOT, LEN, AT, PUT, APPEND, ARRAY, PRINT,
 ROTATE, CONSTANT, LOAD, STORE, DISCARD, JUMP, JUMP_IF_NIL, LIST, FIELD,
 SET_FIELD, NEW, CALL, RETURN) = range(27)

w_true = W_Int(1)


class W_Code(W_Root):
    """A function.

    The words of a function are pairs of an instruction and an operand.  The operand is
    the number of a constant, the slot of a variable, the target of a jump, or a number
    of values.
    """
    _immutable_fields_ = ["name", "arity", "filename", "line", "words[*]",
                          "constants[*]", "variables", "size"]

    def __init__(self, name, arity):
        """Declare a function, which define() defines later."""
        self.name = name
        self.arity = arity
        self.words = None       # until define()

    def define(self, filename, line, words, constants, variables, depth):
        """Define the function, and register it with vmprof.

        'variables' is the number of variables, 'depth' the maximal number of values in
        use.
        """
        self.filename = filename
        self.line = line
        self.words = words
        self.constants = constants
        self.variables = variables
        # the size of the stack of a frame
        self.size = variables + depth
        rvmprof.register_code(self, profiled_name)


def profiled_name(code):
    """Return the name of a function in the profile.  vmprof requires three colons."""
    return "guest:%s:%d:%s" % (code.name[:255], code.line,
                               code.filename.replace(":", "_")[:700])


rvmprof.register_code_object_class(W_Code, profiled_name)


driver = jit.JitDriver(
    greens=["pc", "code"], reds=["frame"], virtualizables=["frame"],
    is_recursive=True, get_unique_id=lambda pc, code: rvmprof.get_unique_id(code))


class Frame(object):
    """The stack of a call: first the variables, and then the values in use."""
    _virtualizable_ = ["stack[*]", "top"]

    def __init__(self, code):
        """Make a frame of a function, with all variables set to nil."""
        self = jit.hint(self, access_directly=True, fresh_virtualizable=True)
        self.stack = [w_nil] * code.size
        self.top = code.variables

    def push(self, w_value):
        """Push a value."""
        top = self.top
        assert top >= 0
        self.stack[top] = w_value
        self.top = top + 1

    def push_truth(self, is_true):
        """Push a truth value, which is 1 or nil."""
        self.push(w_true if is_true else w_nil)

    def pop(self):
        """Pop a value."""
        top = self.top - 1
        assert top >= 0
        self.top = top
        w_value = self.stack[top]
        # otherwise the value would live as long as the frame
        self.stack[top] = w_nil
        return w_value

    def pop_int(self):
        """Pop an integer, and return its value.  Raises RunError."""
        w_value = self.pop()
        if not isinstance(w_value, W_Int):
            raise no_such(w_value, "integer")
        return w_value.value

    def pop_list(self):
        """Pop a list.  Raises RunError."""
        w_value = self.pop()
        if not isinstance(w_value, W_List):
            raise no_such(w_value, "list")
        return w_value

    def pop_object(self):
        """Pop an object.  Raises RunError."""
        w_value = self.pop()
        if not isinstance(w_value, W_Object):
            raise no_such(w_value, "object")
        return w_value


@jit.dont_look_inside
def no_such(w_value, what):
    """Return the error for a value of a wrong type."""
    return RunError("'%s' is no %s" % (w_value.text(), what))


@specialize.call_location()
@jit.unroll_safe
def pop_values(frame, count):
    """Pop 'count' values, and return them as a list.

    Each caller has its own copy of this function.  So the list of a caller that never
    resizes it is a single GC object, and only other lists are two GC objects.
    """
    values = [w_nil] * count
    index = count - 1
    while index >= 0:
        values[index] = frame.pop()
        index -= 1
    return values


@jit.unroll_safe
def pass_values(frame, callee, count):
    """Move 'count' values from the stack of a frame to the variables of a new frame."""
    callee = jit.hint(callee, access_directly=True)
    index = count - 1
    while index >= 0:
        # two statements, because the JIT cannot hold the array `stack` in a variable
        w_value = frame.pop()
        callee.stack[index] = w_value
        index -= 1


@rvmprof.vmprof_execute_code("guest", lambda frame, code: code)
def execute(frame, code):
    """Execute a function, which is then in vmprof's stack, and return its value."""
    return dispatch(frame, code)


@jit.dont_look_inside
def locate(error, code):
    """Add the function 'code' to an error without a function.  Return the error."""
    if not error.where:
        error.where = "in %s (%s:%d): " % (code.name, code.filename, code.line)
    return error


def dispatch(frame, code):
    """Execute the instructions of a function.  Return its value.  Raises RunError."""
    frame = jit.hint(frame, access_directly=True)
    pc = 0
    while True:
        driver.jit_merge_point(pc=pc, code=code, frame=frame)
        if code.words[pc] == RETURN:
            return frame.pop()
        try:
            following = step(frame, code, pc)
        except RunError as e:
            raise locate(e, code)
        except rstackovf.StackOverflow:
            rstackovf.check_stack_overflow()
            raise locate(RunError("the calls are nested too deeply"), code)
        except MemoryError:
            raise locate(RunError("out of memory"), code)
        is_loop = following < pc
        pc = following
        if is_loop:
            driver.can_enter_jit(pc=pc, code=code, frame=frame)


def step(frame, code, pc):
    """Execute the instruction at `pc`.  Return the position of the next instruction.

    This is a separate function, because RPython would check each access to a list for
    an IndexError inside of a try block.
    """
    opcode = code.words[pc]
    operand = code.words[pc + 1]
    assert operand >= 0
    if opcode <= MOD:
        right = frame.pop_int()
        frame.push(W_Int(calculate(opcode, frame.pop_int(), right)))
    elif opcode == LESS:
        right = frame.pop_int()
        frame.push_truth(frame.pop_int() < right)
    elif opcode == SAME:
        w_right = frame.pop()
        frame.push_truth(frame.pop().is_same(w_right))
    elif opcode == NOT:
        frame.push_truth(frame.pop() is w_nil)
    elif opcode == LEN:
        frame.push(W_Int(len(frame.pop_list().items)))
    elif opcode == AT:
        index = frame.pop_int()
        w_list = frame.pop_list()
        w_list.check(index)
        frame.push(w_list.items[index])
    elif opcode == PUT:
        w_value = frame.pop()
        index = frame.pop_int()
        w_list = frame.pop_list()
        w_list.check(index)
        w_list.items[index] = w_value
        frame.push(w_value)
    elif opcode == APPEND:
        w_value = frame.pop()
        frame.pop_list().items.append(w_value)
        frame.push(w_value)
    elif opcode == ARRAY:
        count = frame.pop_int()
        frame.push(array(frame.pop(), count))
    elif opcode == PRINT:
        write(1, frame.pop().text() + "\n")
        frame.push(w_nil)
    elif opcode == ROTATE:
        profile.rotate(frame.pop().text())
        frame.push(w_nil)
    elif opcode == CONSTANT:
        frame.push(code.constants[operand])
    elif opcode == LOAD:
        frame.push(frame.stack[operand])
    elif opcode == STORE:
        w_value = frame.pop()
        frame.stack[operand] = w_value
        frame.push(w_value)
    elif opcode == DISCARD:
        frame.pop()
    elif opcode == JUMP:
        return operand
    elif opcode == JUMP_IF_NIL:
        if frame.pop() is w_nil:
            return operand
    elif opcode == LIST:
        frame.push(W_List(pop_values(frame, operand)))
    elif opcode == FIELD:
        w_object = frame.pop_object()
        frame.push(w_object.slots[w_object.slot(code.constants[operand])])
    elif opcode == SET_FIELD:
        w_value = frame.pop()
        w_object = frame.pop_object()
        w_object.slots[w_object.slot(code.constants[operand])] = w_value
        frame.push(w_value)
    elif opcode == NEW:
        w_class = code.constants[operand]
        assert isinstance(w_class, W_Class)
        frame.push(W_Object(w_class, pop_values(frame, w_class.size)))
    else:
        assert opcode == CALL
        callee = code.constants[operand]
        assert isinstance(callee, W_Code)
        inner = Frame(callee)
        pass_values(frame, inner, callee.arity)
        frame.push(execute(inner, callee))
    return pc + 2


def calculate(opcode, left, right):
    """Return the lower 64 bits of the result of an operator.  Raises RunError."""
    if opcode == ADD:
        return intmask(left + right)
    if opcode == SUB:
        return intmask(left - right)
    if opcode == MUL:
        return intmask(left * right)
    # a division by 0, or of -2**63 by -1, would trap
    if right <= 0:
        raise RunError("can't divide by %d" % right)
    return left // right if opcode == DIV else left % right


@jit.dont_look_inside
def array(w_value, count):
    """Return a list with 'count' references to a value."""
    return W_List([w_value] * count)


@jit.dont_look_inside
def write(fd, text):
    """Write text to a file descriptor.

    Raises RunError.  An error of stderr is ignored, because it cannot be reported.
    """
    try:
        while text:
            written = os.write(fd, text)
            assert written >= 0
            text = text[written:]
    except OSError as e:
        if fd != 2:
            raise RunError("can't write: %s" % os.strerror(e.errno))


def run(main, arguments):
    """Call a program's function 'main' with integers.  Raises RunError."""
    frame = Frame(main)
    for index in range(len(arguments)):
        frame.stack[index] = W_Int(arguments[index])
    execute(frame, main)
