"""The instructions, and the Code that holds them.

A Code's `words` are opcodes, each followed by its operands.
"""
from rpython.rlib import rvmprof

# opcode: operands
#
# CONSTANT: index in constants    LOAD, STORE: slot of a variable
# ITEMS: count                    FIELD, SET_FIELD: index in names
# NEW: class, count               CALL: function
# CALL_METHOD: index in names, count without the receiver
# CALL_BUILTIN: builtin           jumps: position in words
NAMES = [
    "CONSTANT", "LOAD", "STORE", "DISCARD",
    "ADD", "SUB", "MUL", "DIV", "MOD", "XOR",
    "EQUAL", "DIFFERENT", "LESS", "AT_MOST", "GREATER", "AT_LEAST",
    "NEGATE", "NOT",
    "JUMP", "JUMP_IF_FALSE", "JUMP_IF_TRUE",
    "ITEMS", "ITEM", "SET_ITEM", "FIELD", "SET_FIELD", "NEW",
    "CALL", "CALL_METHOD", "CALL_BUILTIN", "RETURN",
]
(
    CONSTANT, LOAD, STORE, DISCARD,
    ADD, SUB, MUL, DIV, MOD, XOR,
    EQUAL, DIFFERENT, LESS, AT_MOST, GREATER, AT_LEAST,
    NEGATE, NOT,
    JUMP, JUMP_IF_FALSE, JUMP_IF_TRUE,
    ITEMS, ITEM, SET_ITEM, FIELD, SET_FIELD, NEW,
    CALL, CALL_METHOD, CALL_BUILTIN, RETURN,
) = range(len(NAMES))

LONGEST_FUNCTION_NAME = 255


class Program(object):
    """What the Codes of one program refer to by number."""
    _immutable_fields_ = ["functions[*]", "classes[*]"]

    def __init__(self):
        self.functions = []
        self.classes = []
        self.main = None


class Code(object):
    _immutable_fields_ = [
        "program", "name", "filename", "line", "arity", "depth", "words[*]",
        "lines[*]", "constants[*]", "names[*]", "variables[*]"]

    def __init__(self, program, name, filename, line, arity, depth, words,
                 lines, constants, names, variables):
        self.program = program
        self.name = name
        self.filename = filename
        self.line = line
        # with the receiver, if it is a method
        self.arity = arity
        # how many values are on the frame's stack at most
        self.depth = depth
        self.words = words
        # one for each word
        self.lines = lines
        self.constants = constants
        self.names = names
        self.variables = variables
        rvmprof.register_code(self, profiled_name)


def profiled_name(code):
    """What vmprof writes into the profile; it insists on three colons."""
    name = code.name
    if len(name) > LONGEST_FUNCTION_NAME:
        name = name[:LONGEST_FUNCTION_NAME]
    text = "guest:%s:%d:%s" % (name, code.line, code.filename.replace(":", "_"))
    if len(text) > rvmprof.MAX_FUNC_NAME:
        text = text[:rvmprof.MAX_FUNC_NAME]
    return text


rvmprof.register_code_object_class(Code, profiled_name)
