"""Code to put before a program that examines its own memory.

A test of both engines uses NOTHING for the builtin engine, which changes no memory of
the library.
"""

NOTHING = """
    import vmprof_allocation

    def memory():
        pass

    def top_is_real():
        return True
"""
PEEK = """
    import vmprof_allocation
    from vmprof_allocation.engines.hook.discovery import process
    from vmprof_allocation.engines.hook import engine as hook
    engine = hook.engine()
    engine.prepare()
    place = engine._place
    layout, ffi = place.layout, place.ffi

    # the dynamic linker fills these in on their first use
    import mmap, os
    os.write(1, b"")
    mmap.mmap(-1, 4096).close()
    bytearray(10**7)
    import gc; gc.collect(); gc.collect()
    os.close(os.dup(1)); os.lseek(os.open(os.devnull, os.O_RDONLY), 0, 0)

    def memory():
        "All that we ever change in libpypy's memory"
        entries = [bytes(ffi.buffer(ffi.cast("char *", place.base + e), 32))
                   for e in layout.entry]
        slots = [place.word(s)[0] for s in layout.slot if s]
        return entries, slots

    def top_is_real():
        return place.word(layout.nursery_top)[0] % 8 == 0

    def pages():
        "The permissions of libpypy's pages, of which there are thousands"
        return {page: m.permissions for m in process.read_maps()
                if m.path == place.path
                for page in range(m.start, m.end, 4096)}
"""
