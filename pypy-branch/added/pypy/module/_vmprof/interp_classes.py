"""The classes of sampled objects, and their names.

vmprof asks for the class of a sampled object in the middle of a minor collection
(class_of()), and gets a number.  Getting the name then would allocate.  So the class
waits in ClassNames until an action writes its name, soon after the collection.
"""
from rpython.rlib import jit, rgc, rvmprof
from rpython.rtyper.lltypesystem import llmemory

from pypy.interpreter.baseobjspace import W_Root
from pypy.interpreter.executioncontext import AsyncAction
from pypy.objspace.std.typeobject import W_TypeObject

# The maximal number of classes that wait for the action.  The instances of further
# classes have no class in the profile.
MAX_WAITING = 512

# PyPy2 has no qualified names
get_name = getattr(W_TypeObject, 'getqualname', W_TypeObject.getname).im_func


# The number of a class, and the number of the profile in which the former is valid;
# compare the field _vmprof_unique_id of code objects
W_TypeObject._vmprof_number = 0
W_TypeObject._vmprof_profile = 0


class ClassNames(AsyncAction):
    """The classes of the present profile, and the action that writes their names."""

    def __init__(self, space):
        AsyncAction.__init__(self, space)
        self.waiting = [None] * MAX_WAITING
        self.count = 0
        self.profile = 0
        self.last = 0
        self.class_of = make_class_of(space, self)

    def begin(self):
        """Start another profile, in which no class has a number."""
        self.profile += 1
        self.last = 0
        for i in range(self.count):
            self.waiting[i] = None
        self.count = 0

    def number(self, w_class):
        """Return the number of a class, or 0 if too many classes wait.  Called in
        the middle of a collection."""
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
        """Write the names of the waiting classes."""
        i = 0
        while i < self.count:       # a collection may add classes
            w_class = self.waiting[i]
            self.waiting[i] = None
            rvmprof.name_class(w_class._vmprof_number,
                               full_name(self.space, w_class))
            i += 1
        self.count = 0

    @jit.dont_look_inside
    def write_last(self):
        """Write the names of all classes of sampled objects, before the profile ends.
        A minor collection finds the classes of young objects first."""
        rgc.collect(0)
        self.write()


def full_name(space, w_class):
    """Return the name of a class with its module, except for built-in classes."""
    name = get_name(w_class, space)
    w_module = w_class.get_module()
    if w_module is None or not space.isinstance_w(w_module, space.w_text):
        return name
    module = space.text_w(w_module)
    if module == '__builtin__' or module == 'builtins':
        return name
    return '%s.%s' % (module, name)


def make_class_of(space, names):
    """Return the function class_of() for rvmprof.enable()."""
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
            return 0                # a new object, or an object without a class
        else:
            w_class = space.gettypeobject(w_obj.typedef)
        if w_class is None:
            return 0
        return names.number(w_class)
    return class_of
