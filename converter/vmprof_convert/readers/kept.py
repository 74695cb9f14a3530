"""All samples of a profile, by their keys, for who makes a table of them: in their
order, whatever became of them when.  What is in memory of most is what became of
them."""
from __future__ import annotations

import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from operator import itemgetter

from vmprof_convert.profile.long_columns import PIECE, Runs
from vmprof_convert.profile.model import ALIVE, Columns, Row
from vmprof_convert.profile.store import Kept as Place
from vmprof_convert.profile.store import Store, is_one
from vmprof_convert.readers.held import Part, Table
from vmprof_convert.readers.runs import Objects, first_places

#: so many pages are in memory whatever is missing in them
_MOST = 16
#: columns that a page keeps, and that those which come late in a piece have
_FATE, _ENDED = Row._fields.index("fate"), Row._fields.index("ended")
_STORED = [name for name in Row._fields if name not in ("fate", "ended")]
_LATE = "size", "type", "fate", "collected", "live_size"


class _Page:
    """So many samples that follow one another."""

    def __init__(self) -> None:
        #: None: it is in `places`
        self.table: Table | None = Table()
        self.fate = self.table.fate
        self.met = bytearray()
        self.places: list[Place] = []


class Kept:
    """See held.Held."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages: list[_Page] = []
        #: how often one was read again
        self._loads = 0
        #: those in memory
        self._near: list[_Page] = []
        #: of what ended: row, time
        self._ended = Runs("iq", store)
        #: objects behind the first one of their piece: the row of that one, and what is
        #: not as there; and of those that ended the row, which of its piece, fate, time
        self._late = Runs("iqibqq", store)
        self._late_ended = Runs("iqbq", store)
        #: by key, and which of its objects: what is old of these, and which of the rows
        #: of the piece it is
        self._late_old: dict[int, int] = {}

    def extend(self, rows: Columns, met: bytes) -> None:
        done = 0
        while done < len(met):
            if not self._pages or len(self._pages[-1].met) == PIECE:
                self._pages.append(_Page())
                self._near.append(self._pages[-1])
            page = self._pages[-1]
            after = done + PIECE - len(page.met)
            assert page.table is not None
            page.table.extend(rows if not done and after >= len(met) else
                              Columns(*[column[done:after] for column in rows]))
            page.met += met[done:after]
            done = after

    def find(self, key: int, count: int = 1) -> Part | None:
        number, row = divmod(key - 1, PIECE)
        if not 0 <= number < len(self._pages):
            return None
        page = self._pages[number]
        count = min(count, len(page.met) - row)
        return Part(self._load(page), page.met, row, count) if count > 0 else None

    def end_all(self, objects: Iterable[tuple[int, int]], fate: int, time: int) -> (
            list[tuple[int, int]]):
        """See held.Held; returns those that can't be."""
        rows, late_rows, late_numbers, wrong = [], [], [], []
        old, fates, first, behind = self._late_old, array.array("b"), 1, 1
        for key, number in objects:
            if number:
                which = key << 63 | number
                if which in old:
                    late_rows.append(key - 1)
                    late_numbers.append(old.pop(which))
                    continue
            else:
                if not first <= key < behind and 0 < key <= len(self._pages) * PIECE:
                    page = (key - 1) // PIECE
                    fates, first = self._pages[page].fate, page * PIECE + 1
                    behind = first + len(fates)
                if first <= key < behind and fates[key - first] == ALIVE:
                    fates[key - first] = fate
                    rows.append(key - 1)
                    continue
            wrong.append((key, number))
        self._ended.add(rows, repeat(time, len(rows)))
        self._late_ended.add(late_rows, late_numbers, repeat(fate, len(late_rows)),
                             repeat(time, len(late_rows)))
        return wrong

    def take(self, wanted: Iterable[int]) -> Iterator[Columns]:
        """None; but what was told of all is no longer in memory then."""
        near = self._near[:-1]
        if near:
            excess = len(near) - self._most()
            stay = []
            for number, page in enumerate(near):
                if number < excess or page.met.count(0) == 0:
                    self._put_away(page)
                else:
                    stay.append(page)
            self._near[:-1] = stay
        return iter(())

    def _most(self) -> int:
        """So many pages stay in memory; more, where facts jump from one to another, as
        those of no sampler do: each time, all of a page is read and written."""
        return _MOST << min(self._loads // (4 * len(self._pages) + 1000), 32)

    def clear(self) -> None:
        """Nobody wants any of it."""
        for page in self._pages:
            if page.table is None:
                self._taken(page)
        self._pages.clear()
        self._near.clear()

    def _put_away(self, page: _Page) -> None:
        if page.table is not None:
            page.places = [self._store.keep(getattr(page.table, name))
                           for name in _STORED]
            page.table = None

    def _load(self, page: _Page) -> Table:
        if page.table is None:
            self._loads += 1
            if len(self._near) > 2 * self._most():
                # a collection may tell of any
                self.take(())
            page.table = Table()
            for name, column in zip(_STORED, self._taken(page)):
                setattr(page.table, name, column[:])
            page.table.fate = page.fate
            page.table.ended = array.array("q", [-1]) * len(page.fate)
            # behind it stands the one that is being filled
            self._near.insert(0, page)
        return page.table

    def _taken(self, page: _Page) -> list[array.array[int]]:
        columns = []
        for place, typecode in zip(page.places, "qqiqqqiqq"):
            columns.append(self._store.load(place, typecode, PIECE))
            self._store.drop(place, typecode, PIECE)
        page.places = []
        return columns

    def add_late(self, keys: Sequence[int], objects: Objects, collected: Sequence[int],
                 live_sizes: Sequence[int],
                 old: Iterable[tuple[int, int]], skipped: int = 0) -> None:
        """Objects that follow the first of their piece, which has this key.  `old`:
        which of them are, and which of its piece each is; so many before it have no
        row."""
        self._late.add(map((-1).__add__, keys), *objects, collected, live_sizes)
        self._late_old.update([(keys[at] << 63 | number, number - skipped)
                               for at, number in old])

    def rest(self) -> Iterator[Columns]:
        """All, and they are no longer here then."""
        self._late_old.clear()
        limits = range(PIECE, (len(self._pages) + 1) * PIECE, PIECE)
        changes = zip(self._ended.parts(limits), self._late.parts(limits),
                      self._late_ended.parts(limits))
        for number, (ended, late, late_ended) in enumerate(changes):
            page, self._pages[number] = self._pages[number], _Page()
            columns = (self._taken(page) if page.table is None else
                       [getattr(page.table, name) for name in _STORED])
            first = number * PIECE
            ends = array.array("q", [-1]) * len(page.fate)
            for row, time in zip(*ended):
                ends[row - first] = time
            columns.insert(_FATE, page.fate)
            columns.insert(_ENDED, ends)
            yield Columns(*(_merged(columns, first, late, late_ended) if late[0]
                            else columns))
        self._pages.clear()
        self._near.clear()


def _merged(columns: list[array.array[int]], first: int, late: list[array.array[int]],
            late_ended: list[array.array[int]]) -> list[array.array[int]]:
    """Each of those that are late behind the others of its piece."""
    of_rows, *own = late
    ends = array.array("q", [-1]) * len(of_rows)
    before = first_places(of_rows, -1)
    for row, number, fate, time in zip(*late_ended):
        at = before[row] + number
        own[_LATE.index("fate")][at], ends[at] = fate, time
    of_name = dict(zip((*_LATE, "ended"), (*own, ends)))
    pieces = [*range(len(columns[0])), *map(first.__rsub__, of_rows)]
    # a merge of two that are sorted: the first of each piece stays in front
    order = sorted(range(len(pieces)), key=pieces.__getitem__)
    # (as lists: to make a number of each place takes longer than all the rest)
    in_order = itemgetter(*order)
    of_pieces = itemgetter(*sorted(pieces))
    result = []
    for name, column in zip(Row._fields, columns):
        more = of_name.get(name)
        if is_one(column) and (more is None or (is_one(more) and more[0] == column[0])):
            result.append(column[:1] * len(pieces))
        else:
            result.append(array.array(
                column.typecode, of_pieces(column.tolist()) if more is None
                else in_order(column.tolist() + more.tolist())))
    return result
