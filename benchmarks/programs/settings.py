"""A language of settings, parsed by lark: each round reads a file of them, works out
what they come to, and writes some of them down again."""
from __future__ import annotations

from lark import Lark, Token

GRAMMAR = r"""
file: section*
section: "[" NAME "]" entry*
entry: NAME "=" sum
?sum: product | sum "+" product -> add | sum "-" product -> subtract
?product: atom | product "*" atom -> multiply
?atom: NUMBER -> number | NAME -> name | "(" sum ")"
NAME: /[a-z_]+/
NUMBER: /\d+/
%ignore /\s+/
"""
LETTERS = "abcdefghij"


def text_of(number):
    """A file of some kilobytes, another one for each number."""
    return "\n".join("[%s]\n%s" % (letter * 3, "\n".join(
        "%s_%s = %s" % (letter, other, " + ".join(
            "(%d * %s - %d)" % (number + i, LETTERS[i % 10], i * i)
            for i in range(8)))
        for other in LETTERS)) for letter in LETTERS)


class Settings:
    def __init__(self):
        self.values = {}

    def read(self, tree):
        for section in tree.children:
            name, *entries = section.children
            for entry in entries:
                key, value = entry.children
                self.values[str(name), str(key)] = self.value(value)

    def value(self, tree):
        if tree.data == "number":
            return int(tree.children[0])
        if tree.data == "name":
            return LETTERS.index(str(tree.children[0]))
        left, right = map(self.value, tree.children)
        if tree.data == "multiply":
            return left * right % 1000003
        return left + right if tree.data == "add" else left - right


def written(tree):
    if isinstance(tree, Token):
        return str(tree)
    return "(%s)" % " ".join([tree.data, *map(written, tree.children)])


def main(rounds):
    parser = Lark(GRAMMAR, parser="lalr", start="file", maybe_placeholders=False)
    for number in range(rounds):
        tree = parser.parse(text_of(number % 7))
        settings = Settings()
        settings.read(tree)
        if number % 2:
            written(tree)
        assert len(settings.values) == 100
