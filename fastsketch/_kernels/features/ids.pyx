"""Places of ids: each different integer, or text, has a place in order of first appearance.

A table of slots by open addressing. A slot holds a place, and 32 bits of the id's hash, so that hardly any id is looked
at but the one that is sought. The hash begins with random bits of the process: nobody can write a file whose ids all
meet in one slot. No place, and no answer, depends on it.
"""
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, UINT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

import os

import numpy as np


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef enum:
    FIRST = 1024  # slots of an empty table
    # results of a search; places are not negative
    UNKNOWN = -1
    FULL = -2

cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little")
cdef uint64_t ODD = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 32)) * <uint64_t> 0xD6E8FEB86659FD93
    h = (h ^ (h >> 32)) * <uint64_t> 0xD6E8FEB86659FD93
    return h ^ (h >> 32)


cdef inline uint64_t hash_of(const uint8_t *text, Py_ssize_t size) noexcept nogil:
    cdef uint64_t h = SEED ^ <uint64_t> size, word
    cdef Py_ssize_t left = size
    while left >= 8:
        memcpy(&word, text, 8)
        h = (h ^ word) * ODD
        h ^= h >> 29
        text += 8
        left -= 8
    if left:
        word = 0
        memcpy(&word, text, left)
        h = (h ^ word) * ODD
    return mixed(h)


cdef inline uint64_t slot_of(uint64_t h, Py_ssize_t place) noexcept nogil:
    return h >> 32 << 32 | <uint64_t> (place + 1)


cdef inline Py_ssize_t place_of(uint64_t slot) noexcept nogil:
    return <Py_ssize_t> (slot & UINT32_MAX) - 1


cdef enlarged(held, Py_ssize_t room):
    """A longer array that begins with the same."""
    out = np.empty(room, np.asarray(held).dtype)
    out[: len(held)] = held
    return out


cdef class IdTable:
    """Different ids, and the place of each.

    is_text : ids are texts (UTF-8), else integers of 64 bits.
    """

    cdef readonly bint is_text
    cdef readonly Py_ssize_t size
    cdef uint64_t[::1] slots  # place + 1 in the low half and a tag in the other, or 0: the slot is free
    cdef int64_t[::1] numbers  # (room,) the ids, or where each text ends
    cdef uint64_t[::1] hashes  # (room,) of texts
    cdef uint8_t[::1] text

    def __init__(self, bint is_text):
        self.is_text, self.size = is_text, 0
        self.slots, self.numbers = np.zeros(FIRST, np.uint64), np.empty(FIRST // 2, np.int64)
        self.hashes = np.empty(FIRST // 2 if is_text else 0, np.uint64)
        self.text = np.empty(16 * FIRST if is_text else 0, np.uint8)

    def __len__(self):
        return self.size

    cdef Py_ssize_t used(self) noexcept nogil:
        """Bytes of text."""
        return self.numbers[self.size - 1] if self.is_text and self.size else 0

    cdef int grow(self, Py_ssize_t text_size) except -1:
        """Room for one id more, of so many bytes."""
        cdef Py_ssize_t i, at, mask = 2 * self.slots.shape[0] - 1
        cdef uint64_t h
        if self.size >= INT32_MAX - 1:
            raise ValueError("there are more ids than 2**31 - 2")
        if self.is_text and self.used() + text_size > self.text.shape[0]:
            self.text = enlarged(self.text, 2 * (self.used() + text_size))
        if self.size == self.numbers.shape[0]:
            slots, numbers = np.zeros(mask + 1, np.uint64), enlarged(self.numbers, 2 * self.size)
            hashes = enlarged(self.hashes, 2 * self.hashes.shape[0])
            self.slots, self.numbers, self.hashes = slots, numbers, hashes
            for i in range(self.size):
                h = self.hashes[i] if self.is_text else mixed(<uint64_t> self.numbers[i] ^ SEED)
                at = h & mask
                while self.slots[at]:
                    at = (at + 1) & mask
                self.slots[at] = slot_of(h, i)
        return 0

    # -- one id --------------------------------------------------------------------------------------------------------
    cdef Py_ssize_t of_number(self, int64_t number, bint add) noexcept nogil:
        cdef uint64_t h = mixed(<uint64_t> number ^ SEED)
        cdef Py_ssize_t mask = self.slots.shape[0] - 1, at = h & mask, place
        while self.slots[at]:
            place = place_of(self.slots[at])
            if self.slots[at] >> 32 == h >> 32 and self.numbers[place] == number:
                return place
            at = (at + 1) & mask
        if not add:
            return UNKNOWN
        if self.size == self.numbers.shape[0]:
            return FULL
        self.numbers[self.size], self.slots[at] = number, slot_of(h, self.size)
        self.size += 1
        return self.size - 1

    cdef Py_ssize_t of_text(self, const uint8_t *text, Py_ssize_t size, bint add) noexcept nogil:
        cdef uint64_t h = hash_of(text, size)
        cdef Py_ssize_t mask = self.slots.shape[0] - 1, at = h & mask, place, start
        cdef uint8_t *held = &self.text[0]
        while self.slots[at]:
            if self.slots[at] >> 32 == h >> 32:
                place = place_of(self.slots[at])
                start = self.numbers[place - 1] if place else 0
                if self.numbers[place] - start == size and memcmp(held + start, text, size) == 0:
                    return place
            at = (at + 1) & mask
        if not add:
            return UNKNOWN
        start = self.used()
        if self.size == self.numbers.shape[0] or start + size > self.text.shape[0]:
            return FULL
        memcpy(held + start, text, size)
        self.numbers[self.size], self.hashes[self.size], self.slots[at] = start + size, h, slot_of(h, self.size)
        self.size += 1
        return self.size - 1

    # -- many ids ------------------------------------------------------------------------------------------------------
    def numbers_to_places(self, const int64_t[::1] numbers, bint add):
        """(n,) int32; -1 for ids that are not known, unless they are added."""
        cdef Py_ssize_t i = 0, n = len(numbers), place = 0
        out = np.empty(n, np.int32)
        cdef int32_t[::1] places = out
        while i < n:
            with nogil:
                while i < n:
                    place = self.of_number(numbers[i], add)
                    if place == FULL:
                        break
                    places[i] = <int32_t> place
                    i += 1
            if i < n:
                self.grow(0)
        return out

    def texts_to_places(self, const uint8_t[::1] text, const int64_t[::1] ends, bint add):
        """The same of texts that lie one after another, each up to its end; `ends` must be in order, within `text`."""
        cdef Py_ssize_t i = 0, n = len(ends), place = 0, start = 0
        cdef uint8_t nothing = 0
        cdef const uint8_t *first = &text[0] if len(text) else &nothing
        out = np.empty(n, np.int32)
        cdef int32_t[::1] places = out
        while i < n:
            with nogil:
                while i < n:
                    start = ends[i - 1] if i else 0
                    place = self.of_text(first + start, ends[i] - start, add)
                    if place == FULL:
                        break
                    places[i] = <int32_t> place
                    i += 1
            if i < n:
                self.grow(ends[i] - start)
        return out

    def strings_to_places(self, list strings, bint add):
        """(places, n) of strings; (places, i) with i < n where entry i is none, or no Unicode text."""
        cdef Py_ssize_t i, n = len(strings), place, size = 0
        cdef const char *text
        out = np.empty(n, np.int32)
        cdef int32_t[::1] places = out
        for i in range(n):
            value = strings[i]
            if not PyUnicode_Check(value):
                return out, i
            try:
                text = PyUnicode_AsUTF8AndSize(value, &size)
            except UnicodeEncodeError:
                return out, i
            place = self.of_text(<const uint8_t *> text, size, add)
            while place == FULL:
                self.grow(size)
                place = self.of_text(<const uint8_t *> text, size, add)
            places[i] = <int32_t> place
        return out, n

    # -- what there is -------------------------------------------------------------------------------------------------
    def copy(self):
        """An independent table of the same ids."""
        cdef IdTable other = IdTable.__new__(IdTable)
        other.is_text, other.size = self.is_text, self.size
        other.slots, other.numbers = np.array(self.slots), np.array(self.numbers)
        other.hashes, other.text = np.array(self.hashes), np.array(self.text)
        return other

    def integers(self):
        """The ids (size,) int64, a view, or of texts where each ends."""
        return np.asarray(self.numbers)[: self.size]

    def utf8(self):
        """The texts one after another, uint8, a view."""
        return np.asarray(self.text)[: self.used()]


def strings_of(const uint8_t[::1] text, const int64_t[::1] ends):
    """Texts that lie one after another as an object array of str; UnicodeDecodeError if they are none."""
    cdef Py_ssize_t i, n = len(ends), start = 0
    cdef uint8_t nothing = 0
    cdef const char *first = <const char *> (&text[0] if len(text) else &nothing)
    out = np.empty(n, object)
    cdef object[::1] strings = out
    for i in range(n):
        strings[i] = PyUnicode_DecodeUTF8(first + start, ends[i] - start, "strict")
        start = ends[i]
    return out
