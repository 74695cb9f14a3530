"""complete.py makes PyPy's patches from RPython's patches and the lines that differ."""
from __future__ import annotations

import re
from pathlib import Path

import pytest

import apply
import complete
import tree
from complete import Problem

THEIRS = """\
gc: count

Why it counts.

index 1111111..2222222 100644
--- a/gc.py
+++ b/gc.py
@@ -10 +10,2 @@ class GC(object):
-    x = 1
+    x = 2
+    y = 3
@@ -20,0 +22 @@ class GC(object):
+    z = 4
@@ -30,2 +31,0 @@ class GC(object):
-    a = 5
-    b = 6
@@ -40 +40 @@ def last():
-    pass
+    return
index 3333333..4444444 100644
--- a/old.py
+++ b/old.py
@@ -1 +1 @@
-one
+two
"""
SHORT = """\
index aaaaaaa..bbbbbbb 100644
--- a/gc.py
+++ b/gc.py
@@ -110 @@ class MovingGC(object):
@@ -120 @@ class MovingGC(object):
+    zz = 44
+    zzz = 444
@@ -130 @@ class MovingGC(object):
@@ -140 @@ def last():
"""
WHOLE = """\
gc: count

Why it counts.

index aaaaaaa..bbbbbbb 100644
--- a/gc.py
+++ b/gc.py
@@ -110 +110,2 @@ class MovingGC(object):
-    x = 1
+    x = 2
+    y = 3
@@ -120,0 +122,2 @@ class MovingGC(object):
+    zz = 44
+    zzz = 444
@@ -130,2 +132,0 @@ class MovingGC(object):
-    a = 5
-    b = 6
@@ -140 +141 @@ def last():
-    pass
+    return
"""


def test_missing_lines_come_from_rpythons_patch() -> None:
    assert complete.complete(SHORT, THEIRS) == WHOLE


def test_change_of_rpythons_patch_is_taken_over() -> None:
    theirs = THEIRS.replace("+    x = 2\n", "+    x = 2\n+    new = 1\n")
    assert complete.complete(SHORT, theirs) == WHOLE.replace(
        "+    x = 2\n", "+    x = 2\n+    new = 1\n").replace(
        "+110,2", "+110,3").replace("+122,2", "+123,2").replace(
        "+132,0", "+133,0").replace("+141", "+142")


def test_patch_may_have_its_own_reason() -> None:
    assert complete.complete("gc: other\n\nBecause.\n\n" + SHORT, THEIRS) \
        == WHOLE.replace("gc: count\n\nWhy it counts.",
                         "gc: other\n\nBecause.")


def test_hunk_that_rpythons_patch_lacks_is_refused() -> None:
    with pytest.raises(Problem, match=r"^gc.py, @@ -150 @@: there is no hunk 5"):
        complete.complete(SHORT + "@@ -150 @@\n", THEIRS)
    with pytest.raises(Problem, match=r"^other.py, @@ -110 @@: there is no hunk 1"):
        complete.complete(SHORT.replace("gc.py", "other.py"), THEIRS)


def test_problem_names_the_patch(tmp_path: Path) -> None:
    base = tree.Ours(tmp_path / "theirs", tmp_path, None)
    ours = complete.Ours(tmp_path / "ours", tmp_path, None, base)
    for folder, text in ("theirs", THEIRS), ("ours", SHORT + "@@ -150 @@\n"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "series").write_text("01-gc.patch\n")
        (tmp_path / folder / "01-gc.patch").write_text(text)
    with pytest.raises(Problem, match=r"ours/01-gc\.patch: gc\.py, @@ -150 @@"):
        ours.series()


def short_patches() -> list[tuple[Path, Path]]:
    """Return PyPy's patch and RPython's patch for each patch that both have."""
    ours, theirs = apply.OURS[1], apply.OURS[0]
    return [(patch.path, theirs.patches / patch.name)
            for patch in ours.series() if (theirs.patches / patch.name).exists()]


def test_each_of_rpythons_patches_has_its_counterpart() -> None:
    assert [path.name for _, path in short_patches()] \
        == [patch.name for patch in apply.OURS[0].series()]


@pytest.mark.parametrize("path, theirs", short_patches(),
                         ids=[path.name for path, _ in short_patches()])
def test_hunks_differ_from_rpythons(path: Path, theirs: Path) -> None:
    reason, files = complete.parse(path.read_text())
    their_reason, their_files = complete.parse(theirs.read_text())
    assert reason != their_reason
    hunks = {file.name: file.hunks for file in their_files}
    for file in files:
        for number, hunk in enumerate(file.hunks):
            for their in hunks.get(file.name, [])[number:number + 1]:
                assert hunk.lines != their.lines, (file.name, hunk.line)


@pytest.mark.parametrize("path", [path for path, _ in short_patches()],
                         ids=[path.name for path, _ in short_patches()])
def test_patches_contain_no_context(path: Path) -> None:
    """The patches only have added and removed lines."""
    reason, files = complete.parse(path.read_text())
    text = reason
    for file in files:
        before, after = (line for line in file.head if line[0] in "+-")
        assert (before, after) == ("--- a/" + file.name, "+++ b/" + file.name)
        for line in file.head:
            assert line in (before, after) or re.fullmatch(
                "index [0-9a-f]{11}[.][.][0-9a-f]{11} 100644", line)
        text += "".join(line + "\n" for line in file.head)
        for hunk in file.hunks:
            assert all(line[0] in "+-" for line in hunk.lines)
            text += "@@ -%d @@%s\n" % (hunk.line, hunk.heading)
            text += "".join(line + "\n" for line in hunk.lines)
    # the parsed parts make up the whole patch file
    assert text == path.read_text()
