# MurmurHash3_x86_32 by Austin Appleby, who placed it in the public domain: 32 bits of any bytes, the same everywhere.
from libc.stdint cimport uint8_t, uint32_t


cdef inline uint32_t rotated(uint32_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (32 - bits))


cdef inline uint32_t scrambled(uint32_t k) noexcept nogil:
    return rotated(k * <uint32_t> 0xcc9e2d51, 15) * <uint32_t> 0x1b873593


cdef inline uint32_t murmur3_32(const uint8_t *text, Py_ssize_t size, uint32_t seed) noexcept nogil:
    cdef uint32_t h = seed, k
    cdef Py_ssize_t i, whole = size & ~<Py_ssize_t> 3
    for i in range(0, whole, 4):
        # byte by byte, so that the order of bytes of the machine does not matter
        k = (<uint32_t> text[i] | <uint32_t> text[i + 1] << 8
             | <uint32_t> text[i + 2] << 16 | <uint32_t> text[i + 3] << 24)
        h = rotated(h ^ scrambled(k), 13) * 5 + <uint32_t> 0xe6546b64
    k = 0
    if size - whole > 2:
        k = <uint32_t> text[whole + 2] << 16
    if size - whole > 1:
        k |= <uint32_t> text[whole + 1] << 8
    if size > whole:
        h ^= scrambled(k | <uint32_t> text[whole])
    h ^= <uint32_t> size
    h = (h ^ h >> 16) * <uint32_t> 0x85ebca6b
    h = (h ^ h >> 13) * <uint32_t> 0xc2b2ae35
    return h ^ h >> 16
