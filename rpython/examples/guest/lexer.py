from guest.errors import ProgramError

NAME, NUMBER, STRING, KEYWORD, SYMBOL, END = range(6)

KEYWORDS = {
    "and": None, "class": None, "else": None, "extends": None, "false": None,
    "field": None, "func": None, "if": None, "new": None, "none": None,
    "not": None, "or": None, "return": None, "self": None, "true": None,
    "while": None,
}
LONG_SYMBOLS = ["==", "!=", "<=", ">="]
SHORT_SYMBOLS = "+-*/%^<>=(){}[],;."


class Token(object):
    def __init__(self, kind, text, line):
        self.kind = kind
        self.text = text
        self.line = line

    def describe(self):
        if self.kind == END:
            return "the end of the file"
        if self.kind == STRING:
            return "a string"
        return "'%s'" % self.text


def is_digit(char):
    return "0" <= char <= "9"


def starts_name(char):
    return "a" <= char <= "z" or "A" <= char <= "Z" or char == "_"


def describe_char(char):
    if " " < char <= "~":
        return "'%s'" % char
    return "byte %d" % ord(char)


class Lexer(object):
    def __init__(self, text):
        self.text = text
        self.position = 0
        self.line = 1
        self.tokens = []

    def run(self):
        while self.skip_blanks():
            char = self.text[self.position]
            if is_digit(char):
                self.number()
            elif starts_name(char):
                self.name()
            elif char == '"':
                self.string()
            else:
                self.symbol()
        self.add(END, "")
        return self.tokens

    def add(self, kind, text):
        self.tokens.append(Token(kind, text, self.line))

    def skip_blanks(self):
        """False at the end of the text."""
        text = self.text
        while self.position < len(text):
            char = text[self.position]
            if char == "#":
                while self.position < len(text) and text[self.position] != "\n":
                    self.position += 1
            elif char == " " or char == "\t" or char == "\r":
                self.position += 1
            elif char == "\n":
                self.line += 1
                self.position += 1
            else:
                return True
        return False

    def take(self, end):
        start = self.position
        assert 0 <= start <= end
        self.position = end
        return self.text[start:end]

    def number(self):
        end = self.position
        while end < len(self.text) and is_digit(self.text[end]):
            end += 1
        if end < len(self.text) and starts_name(self.text[end]):
            raise ProgramError(
                "a number goes on with '%s'; numbers are decimal, and names "
                "start with a letter" % self.text[end], self.line)
        self.add(NUMBER, self.take(end))

    def name(self):
        end = self.position
        while end < len(self.text) and (is_digit(self.text[end]) or
                                        starts_name(self.text[end])):
            end += 1
        name = self.take(end)
        if name in KEYWORDS:
            self.add(KEYWORD, name)
        else:
            self.add(NAME, name)

    def string(self):
        text = self.text
        position = self.position + 1
        chars = []
        while True:
            if position >= len(text) or text[position] == "\n":
                raise ProgramError('a string has no closing \'"\' on its line',
                                   self.line)
            char = text[position]
            position += 1
            if char == '"':
                break
            if char == "\\":
                if position >= len(text):
                    continue
                char = self.escaped(text[position])
                position += 1
            chars.append(char)
        self.position = position
        self.add(STRING, "".join(chars))

    def escaped(self, char):
        if char == "n":
            return "\n"
        if char == "t":
            return "\t"
        if char == '"' or char == "\\":
            return char
        raise ProgramError(
            "unknown escape: a backslash and %s; known are \\n \\t \\\" \\\\"
            % describe_char(char), self.line)

    def symbol(self):
        start = self.position
        for symbol in LONG_SYMBOLS:
            if self.text[start] == symbol[0] and \
                    start + 1 < len(self.text) and \
                    self.text[start + 1] == symbol[1]:
                self.position += 2
                self.add(SYMBOL, symbol)
                return
        char = self.text[start]
        if SHORT_SYMBOLS.find(char) < 0:
            raise ProgramError("unexpected %s" % describe_char(char), self.line)
        self.position += 1
        self.add(SYMBOL, char)


def split(text):
    """The tokens of a program's text, the last of them END."""
    return Lexer(text).run()
