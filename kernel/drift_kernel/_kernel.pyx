# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled kernel: one module, each of whose parts is a file that is included here.

Invariant: nothing is kept between calls. What a part needs of Python above it (`canonical`, a class of metas) is an
argument, and what it fills is a buffer of the call or of an object; so there is nothing that two threads share.
"""

cdef extern from *:
    unsigned int DRIFT_KERNEL_SOURCE  # defined by hatch_build.py, in the first line of the C

SOURCE = DRIFT_KERNEL_SOURCE

include "hash.pyx"
include "lists.pyx"
include "encode.pyx"
include "arrow.pyx"
include "metas.pyx"
include "keys.pyx"
include "walks.pyx"
include "loops.pyx"
include "running.pyx"
