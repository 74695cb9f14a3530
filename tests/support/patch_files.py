"""Read the patches of rpython/ and pypy-branch/."""
from __future__ import annotations

import dataclasses
import re

import tree


@dataclasses.dataclass
class Patch:
    """A patch file, decoded."""

    name: str
    header: str
    #: the changed lines of each hunk, with + and -, by the names of the files
    hunks: dict[str, list[list[str]]]
    context: list[str]

    @property
    def files(self) -> dict[str, list[str]]:
        """The changed lines of all hunks of a file, by the names of the files."""
        return {name: [line for hunk in hunks for line in hunk]
                for name, hunks in self.hunks.items()}


def parse(patch: tree.Patch) -> Patch:
    """Decode the text of a patch file."""
    header: list[str] = []
    context: list[str] = []
    hunks: dict[str, list[list[str]]] = {}
    name, old, new = "", 0, 0
    for line in patch.text.splitlines():
        if old or new:
            if line[:1] not in ("+", "-", "\\"):
                context.append(line)
            else:
                hunks[name][-1].append(line)
            old -= line[:1] in ("-", " ", "")
            new -= line[:1] in ("+", " ", "")
        elif line.startswith("+++ "):
            name = line[len("+++ b/"):].split("\t")[0]
            hunks[name] = []
        elif match := re.match(r"@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@", line):
            old, new = (int(match[i] or "1") for i in (1, 2))
            hunks[name].append([])
        elif not hunks and not re.match("(diff --git|index|---) ", line):
            header.append(line)
    return Patch(patch.name, "\n".join(header), hunks, context)
