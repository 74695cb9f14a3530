"""Where the nursery is in one build of PyPy, and how its objects look: what
search.py and probe/ find out, what the cache keeps, what the engine uses."""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: the functions that are entered through a trampoline
ENTRIES = ("collect_and_reserve", "_minor_collection", "external_malloc")

#: the C functions that libpypy calls through a pointer of its own, which is
#: led to us while sampling lasts; in native/hook/patches/divert.h's order
IMPORTS = ("write", "mmap", "mmap64", "munmap", "lseek", "lseek64", "_exit",
           "abort", "kill", "raise", "execv", "execve", "sigaction", "free")

#: by what os.uname() calls the machine: how many bytes at the entry of a function are
#: swapped at once, by one store.  It begins at a multiple of them.
SWAPPED = {"x86_64": 8, "aarch64": 4}


def pack(types: bytes) -> str:
    """The names as a field of a layout."""
    import binascii
    import zlib
    return binascii.b2a_base64(zlib.compress(types, 9), newline=False).decode()


def unpack(types: str) -> bytes:
    """The opposite of pack().  Raises ValueError."""
    import binascii
    import zlib
    try:
        return zlib.decompress(binascii.a2b_base64(types))
    except zlib.error as e:
        raise ValueError(str(e)) from None


class Layout:
    """All addresses are relative to where the build is loaded."""

    build_id: str
    #: one of SWAPPED
    machine: str
    gc: int
    nursery_free: int
    nursery_top: int
    #: the functions in the order of ENTRIES, how many bytes of each are moved
    #: to make room for a jump, and the bytes that are there (hexadecimal)
    entry: list[int]
    moved: list[int]
    code: list[str]
    #: the pointers of IMPORTS; 0 for one that is not there
    slot: list[int]
    #: bit by bit: the linker makes those of functions whose address is taken
    #: read-only, and with -z now all of them
    slots_read_only: int
    type_info: int
    type_fixed_size: int
    type_item_size: int

    # what probe/ finds out; as here if it is not certain

    #: offset in the GC of its state: 1 while it marks, 2 while it sweeps
    gc_state: int = -1
    #: in an entry of the type table: offset of a word, the bit of it that says
    #: that objects have a length, and offset of the length's offset
    type_info_bits: int = -1
    type_is_varsize: int = 0
    type_length: int = -1
    #: of a header: an old object that marking has met; a young one that is
    #: pinned to its place
    flag_visited: int = 0
    flag_pinned: int = 0
    #: what a survivor of a minor collection leaves in the nursery instead of a
    #: header, in front of its new address
    forwarded: int = 0
    #: the words in which it counts bytes: of blocks of arenas that are in use, of
    #: arenas, of large objects outside of both, of its nursery; 0, all of them
    heap_blocks: int = 0
    heap_arenas: int = 0
    heap_large: int = 0
    heap_nursery: int = 0
    #: the first one is right also while the GC sweeps
    heap_is_counted_on: int = 0
    #: the head of PyPy's table of the JIT's code
    codemap: int = 0
    #: pointers to a list of what the JIT does just now, and to the end of the stack of
    #: roots, to which RPython's functions that run add what they refer to
    jit_phases: int = 0
    roots: int = 0
    #: how frames say at which line they are (hook/lines/frame_lines.h); empty: it is
    #: not known
    frames: list[int]
    #: that the heap looks to us as to the GC (probe/references.py): the number, in the
    #: GC's list, of the type through which it has what each thread has of its own
    references: int = 0
    #: the names of types (probe/names.py): bytes, and their CRC-32; 0: there
    #: are none.  And the names themselves (pack()) if they can't be kept in the
    #: cache
    types_size: int = 0
    types_check: int = 0
    types: str = ""
    #: where another process has left them for this one; empty: nowhere
    types_file: str = ""

    def __init__(self, **fields: Any):
        self.frames = []
        self.__dict__.update(fields)
        assert all(hasattr(self, name) for name in Layout.__annotations__)

    def text(self) -> str:
        """A line for each field, name=value or name=value,value,...; not
        JSON, whose module is larger than all of ours."""
        lines = []
        for name in Layout.__annotations__:
            value = getattr(self, name)
            values = value if isinstance(value, list) else [value]
            lines.append("%s=%s\n" % (name, ",".join(
                str(int(v)) if isinstance(v, bool) else str(v)
                for v in values)))
        return "".join(lines)

    @classmethod
    def parse(cls, text: str) -> Layout:
        """The opposite of text().  Raises ValueError."""
        values = dict(line.split("=", 1) for line in text.splitlines())
        fields: dict[str, Any] = {}
        for name, kind in cls.__annotations__.items():
            value = values.pop(name, "")
            if kind == "list[int]":
                fields[name] = [int(v) for v in value.split(",") if v]
            elif kind == "list[str]":
                fields[name] = value.split(",")
            else:
                fields[name] = value if kind == "str" else int(value)
        if values:
            raise ValueError("unknown fields")
        return cls(**fields)
