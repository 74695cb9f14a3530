"""The compiler from a program's text to instructions, which needs one pass."""
from rpython.rlib.rstring import replace, split

from guest import interpreter
from guest.interpreter import CONSTANT, OPERATORS, W_Code
from guest.objects import UsageError, W_Class, W_Int, W_String, parse_int, w_nil


class Reader(object):
    """The functions and classes of a program, which the constructor compiles.

    In all methods, `height` is the number of values that are on the stack of the
    present function when the compiled instructions begin.  Invalid programs raise
    UsageError.
    """

    def __init__(self, text, filename):
        """Compile the text of a program.  Raises UsageError."""
        self.filename = filename
        self.functions = {}
        self.classes = {}
        # The tokens and their lines: parentheses, strings after a quote, and words.
        # The lists are reversed later, so that the next token can be popped.
        self.tokens = []
        self.lines = []
        for number, line in enumerate(text.split("\n")):
            parts = line.split(";")[0].split('"')
            for index in range(len(parts)):
                found = ['"' + parts[index]]
                if index % 2 == 0:
                    found = split(replace(replace(parts[index], "(", " ( "),
                                          ")", " ) "))
                self.tokens += found
                self.lines += [number + 1] * len(found)
        self.tokens.reverse()
        self.lines.reverse()
        self.line = 1
        while self.tokens:
            self.expect("(")
            if self.tokens and self.tokens[-1] == "class":
                self.read_class()
            else:
                self.read_function()
        for name, code in self.functions.items():
            if code.words is None:
                raise self.wrong("there is no function '%s'" % name)

    def main(self, count):
        """Return the function `main`, which is called with 'count' arguments."""
        if "main" not in self.functions or self.functions["main"].arity < count:
            raise self.wrong("there is no function 'main' of %d values or more" % count)
        return self.functions["main"]

    def wrong(self, what):
        """Return an error with the message 'what' about the line of the last token."""
        return UsageError("%s:%d: %s" % (self.filename, self.line, what))

    def next(self):
        """Read and return a token."""
        if not self.tokens:
            raise self.wrong("a form has no end")
        self.line = self.lines.pop()
        return self.tokens.pop()

    def expect(self, token):
        """Read a token, which must be 'token'."""
        found = self.next()
        if found != token:
            raise self.wrong("expected '%s', found '%s'" % (token, found))

    def ends(self):
        """Read a closing parenthesis if it is the next token, and return whether it is.

        The end of the text counts as the next token, and raises UsageError.
        """
        if self.tokens and self.tokens[-1] != ")":
            return False
        self.expect(")")
        return True

    def read_class(self):
        """Read the definition of a class, after its opening parenthesis."""
        self.expect("class")
        name = self.next()
        fields = {}
        while not self.ends():
            fields[self.next()] = len(fields)
        self.classes[name] = W_Class(name, len(self.classes) + 1, fields)

    def read_function(self):
        """Compile the definition of a function, after its opening parenthesis."""
        self.expect("func")
        self.words = []
        self.constants = []
        self.slots = {}
        self.deepest = 0
        name = self.next()
        line = self.line
        self.expect("(")
        while not self.ends():
            self.slot(self.next(), True)
        code = self.function(name, len(self.slots))
        if code.words is not None:
            raise self.wrong("there are two functions '%s'" % name)
        self.forms(0)
        self.emit(interpreter.RETURN)
        code.define(self.filename, line, self.words[:], self.constants[:],
                    len(self.slots), self.deepest)

    def function(self, name, arity):
        """Return the function with this name, which may be defined later."""
        if name not in self.functions:
            self.functions[name] = W_Code(name, arity)
        code = self.functions[name]
        if code.arity != arity:
            raise self.wrong("'%s' takes %d values, and not %d" % (
                name, code.arity, arity))
        return code

    def emit(self, opcode, operand=0):
        """Emit an instruction.  Return the index of its operand."""
        self.words += [opcode, operand]
        return len(self.words) - 1

    def emit_constant(self, opcode, w_constant):
        """Emit an instruction whose operand is a constant."""
        self.constants.append(w_constant)
        self.emit(opcode, len(self.constants) - 1)

    def slot(self, name, is_new):
        """Return the slot of a variable.  A new one is an error unless 'is_new'."""
        if name not in self.slots:
            if not is_new:
                raise self.wrong("'%s' has no value yet" % name)
            self.slots[name] = len(self.slots)
        return self.slots[name]

    def forms(self, height):
        """Compile the remaining forms in the present parentheses.

        The instructions leave the value of the last form on the stack.
        """
        if self.ends():
            self.emit_constant(CONSTANT, w_nil)
            return
        self.form(height)
        while not self.ends():
            self.emit(interpreter.DISCARD)
            self.form(height)

    def values(self, height):
        """Compile the remaining operands of a form, and return their number."""
        count = 0
        while not self.ends():
            self.form(height + count)
            count += 1
        return count

    def form(self, height):
        """Compile a form, which leaves its value on the stack."""
        self.deepest = max(self.deepest, height + 1)
        token = self.next()
        if token == "(":
            self.call(self.next(), height)
        elif token.startswith('"'):
            self.emit_constant(CONSTANT, W_String(token[1:]))
        elif token == "nil":
            self.emit_constant(CONSTANT, w_nil)
        elif token[0].isdigit() or token[0] == "-":
            try:
                self.emit_constant(CONSTANT, W_Int(parse_int(token)))
            except ValueError:
                raise self.wrong("'%s' is no integer" % token)
        else:
            self.load(token.split("."))

    def load(self, names):
        """Compile the access to a variable, to a field of its value, and so on."""
        self.emit(interpreter.LOAD, self.slot(names[0], False))
        for index in range(1, len(names)):
            self.emit_constant(interpreter.FIELD, W_String(names[index]))

    def call(self, head, height):
        """Compile a form in parentheses, after its first word 'head'."""
        if head == "set":
            names = self.next().split(".")
            last = names.pop()
            if names:
                self.load(names)
                self.form(height + 1)
                self.emit_constant(interpreter.SET_FIELD, W_String(last))
            else:
                self.form(height)
                self.emit(interpreter.STORE, self.slot(last, True))
            self.expect(")")
        elif head == "if":
            self.form(height)
            otherwise = self.emit(interpreter.JUMP_IF_NIL)
            self.form(height)
            end = self.emit(interpreter.JUMP)
            self.words[otherwise] = len(self.words)
            self.forms(height)
            self.words[end] = len(self.words)
        elif head == "while":
            start = len(self.words)
            self.form(height)
            end = self.emit(interpreter.JUMP_IF_NIL)
            self.forms(height)
            self.emit(interpreter.DISCARD)
            self.emit(interpreter.JUMP, start)
            self.words[end] = len(self.words)
            self.emit_constant(CONSTANT, w_nil)
        elif head == "do":
            self.forms(height)
        elif head == "list":
            self.emit(interpreter.LIST, self.values(height))
        elif head == "new":
            self.instance(self.next(), height)
        else:
            count = self.values(height)
            for opcode in range(len(OPERATORS)):
                if OPERATORS[opcode] == (head, count):
                    self.emit(opcode)
                    return
            self.emit_constant(interpreter.CALL, self.function(head, count))

    def instance(self, name, height):
        """Compile `new` for a class.  Fields without a value are nil."""
        if name not in self.classes:
            raise self.wrong("there is no class '%s' above" % name)
        w_class = self.classes[name]
        given = self.values(height)
        if given > w_class.size:
            raise self.wrong("'%s' has %d fields, and not %d" % (
                name, w_class.size, given))
        for _ in range(given, w_class.size):
            self.emit_constant(CONSTANT, w_nil)
        self.deepest = max(self.deepest, height + w_class.size)
        self.emit_constant(interpreter.NEW, w_class)
