# Hashes of bytes that are there at once, see hash.h; without a seed, as the package xxhash has them.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

cdef extern from "hash.h" nogil:
    const uint64_t P64_1, P64_2
    uint64_t drift_xxh64(const uint8_t *data, size_t size)
    uint64_t drift_xxh3_64(const uint8_t *data, size_t size)
    void put_hash128(uint8_t *out, const uint8_t *data, size_t size)
    void put_be64(uint8_t *out, uint64_t value)


def xxh64(bytes data not None):
    """The number that `xxhash.xxh64_intdigest` gives."""
    return drift_xxh64(<const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


def xxh3_64(bytes data not None):
    """The number that `xxhash.xxh3_64_intdigest` gives."""
    return drift_xxh3_64(<const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))


def xxh3_128(bytes data not None):
    """The bytes that `xxhash.xxh3_128_digest` gives."""
    cdef uint8_t out[16]
    put_hash128(out, <const uint8_t *>PyBytes_AS_STRING(data), <size_t>PyBytes_GET_SIZE(data))
    return PyBytes_FromStringAndSize(<const char *>out, 16)
