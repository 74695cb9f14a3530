"""What the parser finds in a program, as a tree.

`emit` hands a node to the method of the compiler that is made for it.
"""


class Node(object):
    def __init__(self, line):
        self.line = line


class Expression(Node):
    def emit(self, compiler):
        raise NotImplementedError

    def assign(self, value):
        """The statement that assigns to this expression; None: there is
        none."""


class Constant(Expression):
    def __init__(self, line, w_value):
        Expression.__init__(self, line)
        self.w_value = w_value

    def emit(self, compiler):
        compiler.constant(self)


class Variable(Expression):
    def __init__(self, line, name):
        Expression.__init__(self, line)
        self.name = name

    def emit(self, compiler):
        compiler.variable(self)

    def assign(self, value):
        return SetVariable(self.line, self.name, value)


class Field(Expression):
    def __init__(self, line, target, name):
        Expression.__init__(self, line)
        self.target = target
        self.name = name

    def emit(self, compiler):
        compiler.field(self)

    def assign(self, value):
        return SetField(self.line, self.target, self.name, value)


class Item(Expression):
    def __init__(self, line, target, index):
        Expression.__init__(self, line)
        self.target = target
        self.index = index

    def emit(self, compiler):
        compiler.item(self)

    def assign(self, value):
        return SetItem(self.line, self.target, self.index, value)


class Unary(Expression):
    def __init__(self, line, operator, operand):
        Expression.__init__(self, line)
        self.operator = operator
        self.operand = operand

    def emit(self, compiler):
        compiler.unary(self)


class Binary(Expression):
    def __init__(self, line, operator, left, right):
        Expression.__init__(self, line)
        self.operator = operator
        self.left = left
        self.right = right

    def emit(self, compiler):
        compiler.binary(self)


class Logical(Expression):
    """`and`, `or`: the right side is evaluated only if it matters."""

    def __init__(self, line, operator, left, right):
        Expression.__init__(self, line)
        self.operator = operator
        self.left = left
        self.right = right

    def emit(self, compiler):
        compiler.logical(self)


class List(Expression):
    def __init__(self, line, items):
        Expression.__init__(self, line)
        self.items = items

    def emit(self, compiler):
        compiler.list(self)


class Call(Expression):
    def __init__(self, line, name, arguments):
        Expression.__init__(self, line)
        self.name = name
        self.arguments = arguments

    def emit(self, compiler):
        compiler.call(self)


class MethodCall(Expression):
    def __init__(self, line, target, name, arguments):
        Expression.__init__(self, line)
        self.target = target
        self.name = name
        self.arguments = arguments

    def emit(self, compiler):
        compiler.method_call(self)


class New(Expression):
    def __init__(self, line, name, arguments):
        Expression.__init__(self, line)
        self.name = name
        self.arguments = arguments

    def emit(self, compiler):
        compiler.new(self)


class Statement(Node):
    def emit(self, compiler):
        raise NotImplementedError


class SetVariable(Statement):
    def __init__(self, line, name, value):
        Statement.__init__(self, line)
        self.name = name
        self.value = value

    def emit(self, compiler):
        compiler.set_variable(self)


class SetField(Statement):
    def __init__(self, line, target, name, value):
        Statement.__init__(self, line)
        self.target = target
        self.name = name
        self.value = value

    def emit(self, compiler):
        compiler.set_field(self)


class SetItem(Statement):
    def __init__(self, line, target, index, value):
        Statement.__init__(self, line)
        self.target = target
        self.index = index
        self.value = value

    def emit(self, compiler):
        compiler.set_item(self)


class Discard(Statement):
    """An expression for its effects only."""

    def __init__(self, line, value):
        Statement.__init__(self, line)
        self.value = value

    def emit(self, compiler):
        compiler.discard(self)


class If(Statement):
    def __init__(self, line, condition, then, otherwise):
        Statement.__init__(self, line)
        self.condition = condition
        self.then = then
        self.otherwise = otherwise

    def emit(self, compiler):
        compiler.if_(self)


class While(Statement):
    def __init__(self, line, condition, body):
        Statement.__init__(self, line)
        self.condition = condition
        self.body = body

    def emit(self, compiler):
        compiler.while_(self)


class Return(Statement):
    def __init__(self, line, value):
        Statement.__init__(self, line)
        self.value = value

    def emit(self, compiler):
        compiler.return_(self)


class Function(Node):
    def __init__(self, line, name, parameters, body):
        Node.__init__(self, line)
        self.name = name
        self.parameters = parameters
        self.body = body


class Class(Node):
    def __init__(self, line, name, base, fields, methods):
        """`base` is the name of the base class; empty: there is none."""
        Node.__init__(self, line)
        self.name = name
        self.base = base
        self.fields = fields
        self.methods = methods


class Program(object):
    def __init__(self, functions, classes):
        self.functions = functions
        self.classes = classes
