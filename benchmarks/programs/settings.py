"""Parse files of a settings language with lark.

Each round parses one file and evaluates its expressions. Every second round also
converts the tree back to text.
"""
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
    """Return a settings file of some kilobytes that depends on the number."""
    return "\n".join("[%s]\n%s" % (letter * 3, "\n".join(
        "%s_%s = %s" % (letter, other, " + ".join(
            "(%d * %s - %d)" % (number + i, LETTERS[i % 10], i * i)
            for i in range(8)))
        for other in LETTERS)) for letter in LETTERS)


class Settings:
    """The values of a settings file, by section and key."""

    def __init__(self):
        """Make an empty set of values."""
        self.values = {}

    def read(self, tree):
        """Evaluate all entries of a syntax tree."""
        for section in tree.children:
            name, *entries = section.children
            for entry in entries:
                key, value = entry.children
                self.values[str(name), str(key)] = self.value(value)

    def value(self, tree):
        """Return the value of an expression."""
        if tree.data == "number":
            return int(tree.children[0])
        if tree.data == "name":
            return LETTERS.index(str(tree.children[0]))
        left, right = map(self.value, tree.children)
        if tree.data == "multiply":
            return left * right % 1000003
        return left + right if tree.data == "add" else left - right


def written(tree):
    """Return the text of a syntax tree in prefix notation."""
    if isinstance(tree, Token):
        return str(tree)
    return "(%s)" % " ".join([tree.data, *map(written, tree.children)])


def main(rounds):
    """Parse and evaluate one file per round."""
    parser = Lark(GRAMMAR, parser="lalr", start="file", maybe_placeholders=False)
    for number in range(rounds):
        tree = parser.parse(text_of(number % 7))
        settings = Settings()
        settings.read(tree)
        if number % 2:
            written(tree)
        assert len(settings.values) == 100
