"""Sources and builders of C extensions that keep references to Python objects.

`holder` uses CPython's C API, and `boxes` uses HPy.
"""
from __future__ import annotations

from conftest import PyPy

#: an extension `holder` that keeps each given object in a static array of C
_HOLDER = r"""
#include <Python.h>
static PyObject *held[20000];
static int count;

static PyObject *hold(PyObject *self, PyObject *object)
{
    Py_INCREF(object);
    held[count++] = object;
    Py_RETURN_NONE;
}

static PyObject *let_go(PyObject *self, PyObject *ignored)
{
    while (count > 0)
        Py_DECREF(held[--count]);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"hold", hold, METH_O, NULL}, {"let_go", let_go, METH_NOARGS, NULL}, {NULL}};
static struct PyModuleDef holder = {
    PyModuleDef_HEAD_INIT, "holder", NULL, -1, methods};

PyMODINIT_FUNC PyInit_holder(void)
{
    return PyModule_Create(&holder);
}
"""


#: an extension `boxes` that keeps an object in a field of its type Box, in a handle
#: that it never closes, or in a global variable
_BOXES = r"""
#include <hpy.h>

typedef struct { HPyField kept; } Box;
HPyType_HELPERS(Box)
static HPyGlobal kept;

HPyDef_SLOT(box_new, box_new_impl, HPy_tp_new)
static HPy box_new_impl(HPyContext *ctx, HPy type, HPy *args, HPy_ssize_t count, HPy kw)
{
    Box *data;
    return HPy_New(ctx, type, &data);
}

HPyDef_SLOT(box_traverse, box_traverse_impl, HPy_tp_traverse)
static int box_traverse_impl(void *self, HPyFunc_visitproc visit, void *arg)
{
    HPy_VISIT(&((Box *)self)->kept);
    return 0;
}

HPyDef_METH(box_put, "put", box_put_impl, HPyFunc_O)
static HPy box_put_impl(HPyContext *ctx, HPy self, HPy object)
{
    HPyField_Store(ctx, self, &Box_AsStruct(ctx, self)->kept, object);
    return HPy_Dup(ctx, ctx->h_None);
}

static HPyDef *of_box[] = { &box_new, &box_traverse, &box_put, NULL };
static HPyType_Spec box = {
    .name = "boxes.Box", .basicsize = sizeof(Box),
    .flags = HPy_TPFLAGS_DEFAULT | HPy_TPFLAGS_HAVE_GC, .defines = of_box };

HPyDef_METH(in_handle, "in_handle", in_handle_impl, HPyFunc_O)
static HPy in_handle_impl(HPyContext *ctx, HPy self, HPy object)
{
    HPy_Dup(ctx, object);
    return HPy_Dup(ctx, ctx->h_None);
}

HPyDef_METH(in_global, "in_global", in_global_impl, HPyFunc_O)
static HPy in_global_impl(HPyContext *ctx, HPy self, HPy object)
{
    HPyGlobal_Store(ctx, &kept, object);
    return HPy_Dup(ctx, ctx->h_None);
}

static HPyDef *of_module[] = { &in_handle, &in_global, NULL };
static HPyGlobal *globals[] = { &kept, NULL };
static HPyModuleDef module = {
    .name = "boxes", .size = -1, .defines = of_module, .globals = globals };

HPy_MODINIT(boxes)
static HPy init_boxes_impl(HPyContext *ctx)
{
    HPy found = HPyModule_Create(ctx, &module);
    HPy type = HPyType_FromSpec(ctx, &box, NULL);

    HPy_SetAttr_s(ctx, found, "Box", type);
    HPy_Close(ctx, type);
    return found;
}
"""


def build_holder(pypy: PyPy) -> None:
    """Build the extension `holder`, with hold(object) and let_go().

    The library goes into the folder of the test's programs.
    """
    pypy.compile_extension("holder", _HOLDER)


def build_boxes(pypy: PyPy) -> bool:
    """Build the extension `boxes`, with Box().put(), in_handle() and in_global().

    Returns False if this PyPy has no HPy.
    """
    run = pypy.command("-c", """if 1:
        import os, sys
        try:
            import hpy.devel
        except ImportError:
            sys.exit(2)
        print(os.path.join(os.path.dirname(hpy.devel.__file__), "include"))
    """)
    assert run.code == 2 or (run.code, run.err) == (0, "")
    if run.code == 0:
        pypy.compile_c(_BOXES, "boxes.hpy.so", "-DHPY_UNIVERSAL_ABI",
                       "-I{0}" + run.out.strip())
    return run.code == 0
