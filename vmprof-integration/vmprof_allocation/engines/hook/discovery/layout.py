"""The build profile: addresses in one build of PyPy, and the layout of its objects.

search.py and probe/ find it, the cache keeps it, and the engine uses it.
"""
from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The GC's functions that get an entry patch.
ENTRIES = ("collect_and_reserve", "_minor_collection", "external_malloc")

#: The C functions that libpypy calls through a pointer in its data.  These pointers are
#: diverted during sampling.  native/hook/patches/divert.h has the same order.
IMPORTS = ("write", "mmap", "mmap64", "munmap", "lseek", "lseek64", "_exit",
           "abort", "kill", "raise", "execv", "execve", "sigaction", "free")

#: For each machine, by its name in os.uname(): the number of bytes at the entry of a
#: function that one store replaces.  The entry must be a multiple of this number.
SWAPPED = {"x86_64": 8, "aarch64": 4}


def pack(types: bytes) -> str:
    """Compress the names of types into the text of the field Layout.types."""
    import binascii
    import zlib
    return binascii.b2a_base64(zlib.compress(types, 9), newline=False).decode()


def unpack(types: str) -> bytes:
    """Return the names of types from the result of pack().

    Raises:
        ValueError: the text is invalid.
    """
    import binascii
    import zlib
    try:
        return zlib.decompress(binascii.a2b_base64(types))
    except zlib.error as e:
        raise ValueError(str(e)) from None


class Layout:
    """The build profile of one build.

    All addresses are relative to the address at which the build is loaded.
    """

    build_id: str
    #: The machine, a key of SWAPPED.
    machine: str
    gc: int
    nursery_free: int
    nursery_top: int
    #: For each function in ENTRIES: its address, the number of bytes at its start that
    #: give way to a jump, and its first bytes (hexadecimal).
    entry: list[int]
    moved: list[int]
    code: list[str]
    #: The addresses of the pointers in IMPORTS; 0 if the build does not import the
    #: function.
    slot: list[int]
    #: Bit i is set if the dynamic linker makes the pointer for IMPORTS[i] read-only.
    #: This is the case for functions whose address is taken, and for all functions if
    #: the build was linked with -z now.
    slots_read_only: int
    type_info: int
    type_fixed_size: int
    type_item_size: int

    # results of probe/; a field that the probe is not certain about has the value here

    #: Offset in the GC of the word for its state: 1 during marking, 2 during sweeping.
    gc_state: int = -1
    #: In an entry of the type table: the offset of a word with flags, the flag for
    #: objects with a length, and the offset of the word that contains the offset of the
    #: length in an object.
    type_info_bits: int = -1
    type_is_varsize: int = 0
    type_length: int = -1
    #: Bits in an object's header.  The first is set if marking has reached this old
    #: object, and the second if this young object is pinned.
    flag_visited: int = 0
    flag_pinned: int = 0
    #: The word that replaces the header of a survivor in the nursery, before its new
    #: address.
    forwarded: int = 0
    #: Addresses of the GC's counts of bytes: in used blocks of arenas, in arenas, and
    #: in large objects outside of arenas.  The last one is the address of the nursery's
    #: size.  All are 0 if they are unknown.
    heap_blocks: int = 0
    heap_arenas: int = 0
    heap_large: int = 0
    heap_nursery: int = 0
    #: 1 if the count at heap_blocks is valid even while the GC sweeps, or 0.
    heap_is_counted_on: int = 0
    #: The address of the head of PyPy's table of compiled code; 0 if it is unknown.
    codemap: int = 0
    #: Addresses of two pointers: to the list of the JIT's present activities, and to
    #: the top of the shadow stack, which holds the references of running RPython
    #: functions.  They are 0 if they are unknown.
    jit_phases: int = 0
    roots: int = 0
    #: How a frame stores its current line (hook/lines/frame_lines.h); empty if unknown.
    frames: list[int]
    #: The GC's number of the type that has the references of each thread.  0 if our
    #: walk of the heap differs from the GC's own walk (probe/references.py).
    references: int = 0
    #: The names of types (probe/names.py): their size in bytes (0 if they are unknown)
    #: and their CRC-32; and the names themselves (pack()) if the cache cannot keep
    #: them.
    types_size: int = 0
    types_check: int = 0
    types: str = ""
    #: The file into which another process has written the names for this process, or
    #: "".
    types_file: str = ""

    def __init__(self, **fields: Any):
        """Set the fields by name; fields of the probe may be missing."""
        self.frames = []
        self.__dict__.update(fields)
        assert all(hasattr(self, name) for name in Layout.__annotations__)

    def text(self) -> str:
        """Return a line for each field: name=value or name=value,value,...

        This is no JSON, because the json module is larger than all modules of the
        sampler.
        """
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
        """Parse the result of text().

        Raises:
            ValueError: the text is invalid.
        """
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
