"""A C extension, `holder`, that keeps references."""
from __future__ import annotations

from conftest import PyPy

#: keeps a reference in C to what it is given
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


def build_holder(pypy: PyPy) -> None:
    """In the folder of its programs: hold(object), let_go()."""
    (pypy.folder / "holder.c").write_text(_HOLDER)
    # from there, as its headers may be those of another release
    run = pypy.command("-c", """if 1:
        import subprocess, sysconfig
        subprocess.check_call([
            "gcc", "-shared", "-fPIC", "-I", sysconfig.get_paths()["include"], "-o",
            "holder" + sysconfig.get_config_var("EXT_SUFFIX"), "holder.c"])
    """)
    assert (run.code, run.err) == (0, "")
