"""The classes whose instances get sampled, and their names.

The GC asks for the class of a sampled object in the middle of a minor collection
(class_of()).  It gets a number then, and the class waits here until an action,
soon after, writes its name: that would allocate.
"""
from rpython.rlib import jit, rgc, rvmprof
from rpython.rtyper.lltypesystem import llmemory

from pypy.interpreter.baseobjspace import W_Root
from pypy.interpreter.executioncontext import AsyncAction
from pypy.objspace.std.typeobject import W_TypeObject

# So many classes wait for their name, at most.  What else comes meanwhile has
# no class.
MAX_WAITING = 512

# PyPy2 has no qualified names
get_name = getattr(W_TypeObject, 'getqualname', W_TypeObject.getname).im_func


# A class has a number in one profile: its fields for the two, as codes have one
# for their _vmprof_unique_id
W_TypeObject._vmprof_number = 0
W_TypeObject._vmprof_profile = 0


class ClassNames(AsyncAction):
    def __init__(self, space):
        AsyncAction.__init__(self, space)
        self.waiting = [None] * MAX_WAITING
        self.count = 0
        self.profile = 0
        self.last = 0
        self.class_of = make_class_of(space, self)

    def begin(self):
        """Another profile begins."""
        self.profile += 1
        self.last = 0
        for i in range(self.count):
            self.waiting[i] = None
        self.count = 0

    def number(self, w_class):
        """Called in the middle of a collection."""
        if w_class._vmprof_profile != self.profile:
            if self.count == MAX_WAITING:
                return 0
            self.last += 1
            w_class._vmprof_profile = self.profile
            w_class._vmprof_number = self.last
            self.waiting[self.count] = w_class
            self.count += 1
            self.fire()
        return w_class._vmprof_number

    def perform(self, executioncontext, frame):
        self.write()

    @jit.dont_look_inside
    def write(self):
        """Write the names of those that wait."""
        i = 0
        while i < self.count:       # a collection may bring more
            w_class = self.waiting[i]
            self.waiting[i] = None
            rvmprof.name_class(w_class._vmprof_number,
                               full_name(self.space, w_class))
            i += 1
        self.count = 0

    @jit.dont_look_inside
    def write_last(self):
        """A profile ends: of the young objects, too, the classes have names
        in it."""
        rgc.collect(0)
        self.write()


def full_name(space, w_class):
    name = get_name(w_class, space)
    w_module = w_class.get_module()
    if w_module is None or not space.isinstance_w(w_module, space.w_text):
        return name
    module = space.text_w(w_module)
    if module == '__builtin__' or module == 'builtins':
        return name
    return '%s.%s' % (module, name)


def make_class_of(space, names):
    @rgc.no_collect
    def class_of(address):
        w_obj = rgc.try_cast_gcref_to_instance(
            W_Root, llmemory.cast_adr_to_ptr(address, llmemory.GCREF))
        if w_obj is None:
            return 0
        map = w_obj._get_mapdict_map()
        if map is not None:
            w_class = map.terminator.w_cls
        elif w_obj.user_overridden_class or w_obj.typedef is None:
            return 0                # just born, or nothing that has a class
        else:
            w_class = space.gettypeobject(w_obj.typedef)
        if w_class is None:
            return 0
        return names.number(w_class)
    return class_of
