"""Recursive descent: one method for each rule of the grammar."""
from rpython.rlib.rarithmetic import string_to_int
from rpython.rlib.rstring import ParseStringOverflowError

from guest import lexer, tree
from guest.errors import ProgramError
from guest.objects import W_Int, W_String, w_false, w_none, w_true

# binary operators, those that bind less first
LEVELS = [
    ["==", "!=", "<", "<=", ">", ">="],
    ["^"],
    ["+", "-"],
    ["*", "/", "%"],
]
COMPARISONS = 0


class Parser(object):
    def __init__(self, tokens):
        self.tokens = tokens
        self.position = 0
        self.token = tokens[0]

    def advance(self):
        token = self.token
        if token.kind != lexer.END:
            self.position += 1
            self.token = self.tokens[self.position]
        return token

    def sees(self, text):
        kind = self.token.kind
        return (kind == lexer.SYMBOL or kind == lexer.KEYWORD) and \
            self.token.text == text

    def accept(self, text):
        if self.sees(text):
            self.advance()
            return True
        return False

    def wrong(self, expected):
        return ProgramError("expected %s, found %s" % (
            expected, self.token.describe()), self.token.line)

    def expect(self, text):
        if not self.accept(text):
            raise self.wrong("'%s'" % text)

    def name(self, what):
        if self.token.kind != lexer.NAME:
            raise self.wrong(what)
        return self.advance().text

    # definitions

    def program(self):
        functions = []
        classes = []
        while self.token.kind != lexer.END:
            if self.sees("func"):
                functions.append(self.function())
            elif self.sees("class"):
                classes.append(self.class_())
            else:
                raise self.wrong("'func' or 'class'")
        return tree.Program(functions, classes)

    def function(self):
        line = self.advance().line
        name = self.name("the name of the function")
        self.expect("(")
        parameters = []
        if not self.accept(")"):
            parameters = self.names("the name of a parameter")
            self.expect(")")
        return tree.Function(line, name, parameters, self.block())

    def names(self, what):
        names = [self.name(what)]
        while self.accept(","):
            names.append(self.name(what))
        return names

    def class_(self):
        line = self.advance().line
        name = self.name("the name of the class")
        base = ""
        if self.accept("extends"):
            base = self.name("the name of the base class")
        self.expect("{")
        fields = []
        methods = []
        while not self.accept("}"):
            if self.accept("field"):
                fields += self.names("the name of a field")
                self.expect(";")
            elif self.sees("func"):
                methods.append(self.function())
            else:
                raise self.wrong("'field', 'func' or '}'")
        return tree.Class(line, name, base, fields, methods)

    # statements

    def block(self):
        self.expect("{")
        statements = []
        while not self.accept("}"):
            statements.append(self.statement())
        return statements

    def statement(self):
        line = self.token.line
        if self.accept("if"):
            return self.if_(line)
        if self.accept("while"):
            condition = self.expression()
            return tree.While(line, condition, self.block())
        if self.accept("return"):
            return self.return_(line)
        expression = self.expression()
        if self.accept("="):
            statement = expression.assign(self.expression())
            if statement is None:
                raise ProgramError(
                    "can't assign to that; a variable, a field or an item "
                    "can stand before '='", line)
        else:
            statement = tree.Discard(line, expression)
        self.expect(";")
        return statement

    def if_(self, line):
        condition = self.expression()
        then = self.block()
        otherwise = []
        if self.accept("else"):
            line_of_else = self.token.line
            otherwise = [self.if_(line_of_else)] if self.accept("if") \
                else self.block()
        return tree.If(line, condition, then, otherwise)

    def return_(self, line):
        if self.accept(";"):
            return tree.Return(line, tree.Constant(line, w_none))
        value = self.expression()
        self.expect(";")
        return tree.Return(line, value)

    # expressions

    def expression(self):
        left = self.conjunction()
        while self.sees("or"):
            line = self.advance().line
            left = tree.Logical(line, "or", left, self.conjunction())
        return left

    def conjunction(self):
        left = self.negation()
        while self.sees("and"):
            line = self.advance().line
            left = tree.Logical(line, "and", left, self.negation())
        return left

    def negation(self):
        line = self.token.line
        if self.accept("not"):
            return tree.Unary(line, "not", self.negation())
        return self.binary(COMPARISONS)

    def binary(self, level):
        if level == len(LEVELS):
            return self.minus()
        left = self.binary(level + 1)
        operators = LEVELS[level]
        while self.token.kind == lexer.SYMBOL and self.token.text in operators:
            operator = self.advance()
            right = self.binary(level + 1)
            left = tree.Binary(operator.line, operator.text, left, right)
            if level == COMPARISONS:
                # a < b < c would compare a boolean with c
                break
        return left

    def minus(self):
        line = self.token.line
        if self.accept("-"):
            return tree.Unary(line, "-", self.minus())
        return self.postfix()

    def postfix(self):
        expression = self.primary()
        while True:
            line = self.token.line
            if self.accept("."):
                name = self.name("the name of a field or method")
                if self.accept("("):
                    expression = tree.MethodCall(
                        line, expression, name, self.rest_of_list(")"))
                else:
                    expression = tree.Field(line, expression, name)
            elif self.accept("["):
                index = self.expression()
                self.expect("]")
                expression = tree.Item(line, expression, index)
            else:
                return expression

    def rest_of_list(self, closing):
        expressions = []
        if not self.accept(closing):
            expressions.append(self.expression())
            while self.accept(","):
                expressions.append(self.expression())
            self.expect(closing)
        return expressions

    def primary(self):
        token = self.token
        line = token.line
        if token.kind == lexer.NUMBER:
            return tree.Constant(line, self.number())
        if token.kind == lexer.STRING:
            self.advance()
            return tree.Constant(line, W_String(token.text))
        if token.kind == lexer.NAME:
            self.advance()
            if self.accept("("):
                return tree.Call(line, token.text, self.rest_of_list(")"))
            return tree.Variable(line, token.text)
        if self.accept("self"):
            return tree.Variable(line, "self")
        if self.accept("none"):
            return tree.Constant(line, w_none)
        if self.accept("true"):
            return tree.Constant(line, w_true)
        if self.accept("false"):
            return tree.Constant(line, w_false)
        if self.accept("new"):
            name = self.name("the name of a class")
            self.expect("(")
            return tree.New(line, name, self.rest_of_list(")"))
        if self.accept("["):
            return tree.List(line, self.rest_of_list("]"))
        if self.accept("("):
            expression = self.expression()
            self.expect(")")
            return expression
        raise self.wrong("an expression")

    def number(self):
        token = self.advance()
        try:
            return W_Int(string_to_int(token.text))
        except ParseStringOverflowError:
            raise ProgramError(
                "the number %s is too large; the largest is 2**63 - 1"
                % token.text, token.line)


def parse(text):
    """The tree of a program's text.  Raises ProgramError."""
    return Parser(lexer.split(text)).program()
