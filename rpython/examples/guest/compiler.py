"""From the tree to bytecode.  Names of functions, classes and variables are
resolved here; those of fields and methods when the program runs."""
from guest import builtins, bytecode
from guest.bytecode import Code, Program
from guest.errors import ProgramError
from guest.objects import Class, w_false, w_none, w_true

OPERATORS = {
    "+": bytecode.ADD, "-": bytecode.SUB, "*": bytecode.MUL,
    "/": bytecode.DIV, "%": bytecode.MOD, "^": bytecode.XOR,
    "==": bytecode.EQUAL, "!=": bytecode.DIFFERENT,
    "<": bytecode.LESS, "<=": bytecode.AT_MOST,
    ">": bytecode.GREATER, ">=": bytecode.AT_LEAST,
}


def check_count(what, expected, given, line):
    if expected != given:
        raise ProgramError("%s takes %d argument(s), not %d" % (
            what, expected, given), line)


class Scope(object):
    """Functions and classes by name."""

    def __init__(self, filename):
        self.filename = filename
        self.program = Program()
        self.numbers = {}
        self.functions = []
        self.class_numbers = {}
        self.classes = []

    def add_functions(self, functions):
        for function in functions:
            if function.name in self.numbers:
                raise ProgramError("there is a function '%s' already"
                                   % function.name, function.line)
            if builtins.find(function.name) >= 0:
                raise ProgramError("'%s' is a builtin function; choose "
                                   "another name" % function.name,
                                   function.line)
            self.numbers[function.name] = len(self.functions)
            self.functions.append(function)

    def add_class(self, definition):
        """The bodies of the methods follow when all names are known."""
        if definition.name in self.class_numbers:
            raise ProgramError("there is a class '%s' already"
                               % definition.name, definition.line)
        fields = {}
        methods = {}
        if definition.base:
            if definition.base not in self.class_numbers:
                raise ProgramError("there is no class '%s' before this line"
                                   % definition.base, definition.line)
            base = self.classes[self.class_numbers[definition.base]]
            for name in base.fields:
                fields[name] = base.fields[name]
        for name in definition.fields:
            if name in fields:
                raise ProgramError("there is a field '%s' already" % name,
                                   definition.line)
            fields[name] = len(fields)
        number = len(self.classes)
        self.class_numbers[definition.name] = number
        self.classes.append(Class(definition.name, number, fields, methods))

    def find_class(self, name, line):
        number = self.class_numbers.get(name, -1)
        if number < 0:
            raise ProgramError("there is no class '%s'" % name, line)
        return number

    def add_methods(self, definition):
        """Bases stand first: theirs are complete."""
        class_ = self.classes[self.class_numbers[definition.name]]
        own = {}
        for method in definition.methods:
            if method.name in own:
                raise ProgramError("there is a method '%s' already"
                                   % method.name, method.line)
            own[method.name] = None
            class_.methods[method.name] = compile_function(
                self, method, definition.name)
        if definition.base:
            base = self.classes[self.class_numbers[definition.base]]
            for name in base.methods:
                if name not in own:
                    class_.methods[name] = base.methods[name]


def compile_function(scope, function, class_name):
    """`class_name` is empty for a function that is no method."""
    body = Body(scope)
    name = function.name
    if class_name:
        name = "%s.%s" % (class_name, name)
        body.declare("self")
    for parameter in function.parameters:
        if parameter in body.slots:
            raise ProgramError("two parameters are named '%s'" % parameter,
                               function.line)
        body.declare(parameter)
    arity = len(body.variables)
    body.statements(function.body)
    body.emit_constant(w_none, function.line)
    body.emit(function.line, bytecode.RETURN, -1)
    return Code(scope.program, name, scope.filename, function.line, arity,
                body.deepest, body.words[:], body.lines[:], body.constants[:],
                body.names[:], body.variables[:])


class Body(object):
    """The instructions of one function as they grow."""

    def __init__(self, scope):
        self.scope = scope
        self.slots = {}
        self.variables = []
        self.words = []
        self.lines = []
        self.constants = []
        self.names = []
        self.name_numbers = {}
        self.depth = 0
        self.deepest = 0

    def declare(self, name):
        slot = self.slots.get(name, -1)
        if slot < 0:
            slot = len(self.variables)
            self.slots[name] = slot
            self.variables.append(name)
        return slot

    def name_number(self, name):
        number = self.name_numbers.get(name, -1)
        if number < 0:
            number = len(self.names)
            self.name_numbers[name] = number
            self.names.append(name)
        return number

    # instructions

    def word(self, line, word):
        self.words.append(word)
        self.lines.append(line)

    def emit(self, line, opcode, effect):
        """`effect` is how many values more are on the stack afterwards."""
        self.word(line, opcode)
        self.depth += effect
        if self.depth > self.deepest:
            self.deepest = self.depth

    def emit_constant(self, w_value, line):
        self.emit(line, bytecode.CONSTANT, 1)
        self.word(line, len(self.constants))
        self.constants.append(w_value)

    def emit_jump(self, line, opcode, effect):
        """A jump forward; land() tells where to."""
        self.emit(line, opcode, effect)
        self.word(line, 0)
        return len(self.words) - 1

    def land(self, operand):
        self.words[operand] = len(self.words)

    # statements

    def statements(self, statements):
        for statement in statements:
            statement.emit(self)

    def set_variable(self, node):
        node.value.emit(self)
        if node.name == "self":
            raise ProgramError("can't assign to 'self'", node.line)
        slot = self.declare(node.name)
        self.emit(node.line, bytecode.STORE, -1)
        self.word(node.line, slot)

    def set_field(self, node):
        node.target.emit(self)
        node.value.emit(self)
        self.emit(node.line, bytecode.SET_FIELD, -2)
        self.word(node.line, self.name_number(node.name))

    def set_item(self, node):
        node.target.emit(self)
        node.index.emit(self)
        node.value.emit(self)
        self.emit(node.line, bytecode.SET_ITEM, -3)

    def discard(self, node):
        node.value.emit(self)
        self.emit(node.line, bytecode.DISCARD, -1)

    def if_(self, node):
        node.condition.emit(self)
        to_else = self.emit_jump(node.line, bytecode.JUMP_IF_FALSE, -1)
        self.statements(node.then)
        if node.otherwise:
            to_end = self.emit_jump(node.line, bytecode.JUMP, 0)
            self.land(to_else)
            self.statements(node.otherwise)
            self.land(to_end)
        else:
            self.land(to_else)

    def while_(self, node):
        start = len(self.words)
        node.condition.emit(self)
        to_end = self.emit_jump(node.line, bytecode.JUMP_IF_FALSE, -1)
        self.statements(node.body)
        self.emit(node.line, bytecode.JUMP, 0)
        self.word(node.line, start)
        self.land(to_end)

    def return_(self, node):
        node.value.emit(self)
        self.emit(node.line, bytecode.RETURN, -1)

    # expressions: each leaves one value on the stack

    def expressions(self, expressions):
        for expression in expressions:
            expression.emit(self)

    def constant(self, node):
        self.emit_constant(node.w_value, node.line)

    def variable(self, node):
        slot = self.slots.get(node.name, -1)
        if slot < 0:
            if node.name == "self":
                raise ProgramError("there is no 'self' outside of methods",
                                   node.line)
            raise ProgramError("nothing is assigned to '%s' before this line"
                               % node.name, node.line)
        self.emit(node.line, bytecode.LOAD, 1)
        self.word(node.line, slot)

    def field(self, node):
        node.target.emit(self)
        self.emit(node.line, bytecode.FIELD, 0)
        self.word(node.line, self.name_number(node.name))

    def item(self, node):
        node.target.emit(self)
        node.index.emit(self)
        self.emit(node.line, bytecode.ITEM, -1)

    def unary(self, node):
        node.operand.emit(self)
        if node.operator == "not":
            self.emit(node.line, bytecode.NOT, 0)
        else:
            self.emit(node.line, bytecode.NEGATE, 0)

    def binary(self, node):
        node.left.emit(self)
        node.right.emit(self)
        self.emit(node.line, OPERATORS[node.operator], -1)

    def logical(self, node):
        node.left.emit(self)
        if node.operator == "and":
            opcode, w_decided = bytecode.JUMP_IF_FALSE, w_false
        else:
            opcode, w_decided = bytecode.JUMP_IF_TRUE, w_true
        decided = self.emit_jump(node.line, opcode, -1)
        node.right.emit(self)
        # the other way to the end leaves a value too, but only one of them
        to_end = self.emit_jump(node.line, bytecode.JUMP, -1)
        self.land(decided)
        self.emit_constant(w_decided, node.line)
        self.land(to_end)

    def list(self, node):
        self.expressions(node.items)
        self.emit(node.line, bytecode.ITEMS, 1 - len(node.items))
        self.word(node.line, len(node.items))

    def call(self, node):
        count = len(node.arguments)
        builtin = builtins.find(node.name)
        if builtin >= 0:
            check_count("%s()" % node.name, builtins.BUILTINS[builtin].arity,
                        count, node.line)
            opcode, number = bytecode.CALL_BUILTIN, builtin
        else:
            number = self.scope.numbers.get(node.name, -1)
            if number < 0:
                raise ProgramError("there is no function '%s'" % node.name,
                                   node.line)
            function = self.scope.functions[number]
            check_count("%s()" % node.name, len(function.parameters), count,
                        node.line)
            opcode = bytecode.CALL
        self.expressions(node.arguments)
        self.emit(node.line, opcode, 1 - count)
        self.word(node.line, number)

    def method_call(self, node):
        node.target.emit(self)
        self.expressions(node.arguments)
        self.emit(node.line, bytecode.CALL_METHOD, -len(node.arguments))
        self.word(node.line, self.name_number(node.name))
        self.word(node.line, len(node.arguments))

    def new(self, node):
        number = self.scope.find_class(node.name, node.line)
        count = len(node.arguments)
        size = self.scope.classes[number].size
        if count > size:
            raise ProgramError("%s has %d field(s), but %d values are given"
                               % (node.name, size, count), node.line)
        self.expressions(node.arguments)
        self.emit(node.line, bytecode.NEW, 1 - count)
        self.word(node.line, number)
        self.word(node.line, count)


def compile_program(tree, filename):
    """The Program of a tree.  Raises ProgramError."""
    scope = Scope(filename)
    scope.add_functions(tree.functions)
    for definition in tree.classes:
        scope.add_class(definition)
    for definition in tree.classes:
        scope.add_methods(definition)
    codes = [compile_function(scope, function, "")
             for function in tree.functions]
    program = scope.program
    program.functions = codes[:]
    program.classes = scope.classes[:]
    main = scope.numbers.get("main", -1)
    if main < 0:
        raise ProgramError("there is no function 'main'; the program starts "
                           "with 'func main(arguments)'", 1)
    program.main = codes[main]
    if program.main.arity != 1:
        raise ProgramError("main() must have one parameter, the list of the "
                           "program's arguments", program.main.line)
    return program
