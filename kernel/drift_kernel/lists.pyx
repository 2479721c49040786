# Values in lists, without counting references; and memory that is fetched before it is looked at.
#
# Why: a list holds where its values are, so the first loop over a batch waits for each value, and for what is in it, as
# long as for the work on some of them, unless it was fetched some values before.

from cpython.object cimport PyObject

cdef extern from *:
    """
    #define DRIFT_AHEAD 8  /* so many values before one it is fetched */

    /* Inlined always: a function that only fetches has no effect that the compiler knows, so calls of it would go. */
    static inline __attribute__((always_inline)) void drift_fetch(const void *value) {
        __builtin_prefetch(value);
        __builtin_prefetch((const char *)value + 48);  /* a short text, or what is in a tuple */
    }

    static inline __attribute__((always_inline)) void drift_fetch_ahead(PyObject *values, Py_ssize_t at) {
        PyObject *value;
        if (at + 2 * DRIFT_AHEAD >= PyList_GET_SIZE(values))
            return;
        drift_fetch(PyList_GET_ITEM(values, at + 2 * DRIFT_AHEAD));
        value = PyList_GET_ITEM(values, at + DRIFT_AHEAD);
        if (PyTuple_CheckExact(value))
            for (Py_ssize_t each = 0; each < PyTuple_GET_SIZE(value) && each < DRIFT_AHEAD; each++)
                drift_fetch(PyTuple_GET_ITEM(value, each));
    }
    """
    Py_ssize_t _AHEAD "DRIFT_AHEAD"
    void _fetch "drift_fetch"(const void *value) nogil
    void _fetch_ahead "drift_fetch_ahead"(list values, Py_ssize_t at) noexcept  # in a loop over these that is at one

cdef extern from "Python.h":
    PyObject *_kind "Py_TYPE"(PyObject *value) noexcept
    Py_ssize_t _references "Py_REFCNT"(PyObject *value) noexcept
    PyObject *_of_list "PyList_GET_ITEM"(PyObject *values, Py_ssize_t at) noexcept
    Py_ssize_t _list_size "PyList_GET_SIZE"(PyObject *values) noexcept
    PyObject *_of_tuple "PyTuple_GET_ITEM"(PyObject *values, Py_ssize_t at) noexcept
    Py_ssize_t _tuple_size "PyTuple_GET_SIZE"(PyObject *values) noexcept
    PyObject *_of_sequence "PySequence_Fast_GET_ITEM"(PyObject *values, Py_ssize_t at) noexcept  # a list or a tuple
    Py_ssize_t _sequence_size "PySequence_Fast_GET_SIZE"(PyObject *values) noexcept
    bint _next_of_dict "PyDict_Next"(PyObject *rows, Py_ssize_t *at, PyObject **key, PyObject **value) noexcept

