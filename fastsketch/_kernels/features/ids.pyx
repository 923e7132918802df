"""Places of ids: each different integer, or text, has a place in order of first appearance.

A table of slots by open addressing. A slot holds a place, and 32 bits of the id's hash, so that hardly any id is looked
at but the one that is sought. The hash begins with random bits of the process: nobody can write a file whose ids all
meet in one slot. No place, and no answer, depends on it.
"""
from cpython.unicode cimport PyUnicode_Check, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
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


cdef struct Slot:
    int32_t place  # + 1; 0: the slot is free
    uint32_t tag  # of the hash, whose low bits say where the search begins


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


cdef class IdTable:
    """Different ids, and the place of each.

    is_text : ids are texts (UTF-8), else integers of 64 bits.
    """

    cdef readonly bint is_text
    cdef readonly Py_ssize_t size
    cdef Py_ssize_t mask, room, text_room
    cdef Slot *slots
    cdef int64_t *numbers  # (room,) the ids, or where each text ends
    cdef uint8_t *text
    cdef uint64_t *hashes  # (room,) of texts
    cdef object held_slots, held_numbers, held_text, held_hashes  # the arrays that own them

    def __init__(self, bint is_text):
        self.is_text, self.size = is_text, 0
        self.set_slots(FIRST)
        self.set_room(FIRST // 2)
        self.set_text(16 * FIRST if is_text else 0)

    def __len__(self):
        return self.size

    # -- memory --------------------------------------------------------------------------------------------------------
    cdef int set_slots(self, Py_ssize_t n) except -1:
        held = np.zeros(n, np.uint64)
        cdef uint64_t[::1] view = held
        self.held_slots, self.slots, self.mask = held, <Slot *> &view[0], n - 1
        return 0

    cdef int set_room(self, Py_ssize_t room) except -1:
        """For as many ids; those that are there stay."""
        numbers, hashes = np.empty(room, np.int64), np.empty(room if self.is_text else 1, np.uint64)
        cdef int64_t[::1] view = numbers
        cdef uint64_t[::1] other = hashes
        if self.size:
            memcpy(&view[0], self.numbers, self.size * sizeof(int64_t))
            if self.is_text:
                memcpy(&other[0], self.hashes, self.size * sizeof(uint64_t))
        self.held_numbers, self.numbers, self.held_hashes, self.hashes = numbers, &view[0], hashes, &other[0]
        self.room = room
        return 0

    cdef int set_text(self, Py_ssize_t room) except -1:
        text = np.empty(max(room, 1), np.uint8)
        cdef uint8_t[::1] view = text
        cdef Py_ssize_t used = self.used()
        if used:
            memcpy(&view[0], self.text, used)
        self.held_text, self.text, self.text_room = text, &view[0], room
        return 0

    cdef Py_ssize_t used(self) noexcept nogil:
        """Bytes of text."""
        return self.numbers[self.size - 1] if self.is_text and self.size else 0

    cdef int grow(self, Py_ssize_t text_size) except -1:
        """Room for one id more, of so many bytes."""
        cdef Py_ssize_t i, at
        cdef uint64_t h
        if self.size >= INT32_MAX - 1:
            raise ValueError("there are more ids than 2**31 - 2")
        if self.is_text and self.used() + text_size > self.text_room:
            self.set_text(2 * (self.used() + text_size))
        if self.size == self.room:
            self.set_room(2 * self.room)
            self.set_slots(2 * (self.mask + 1))
            for i in range(self.size):
                h = self.hashes[i] if self.is_text else mixed(<uint64_t> self.numbers[i] ^ SEED)
                at = h & self.mask
                while self.slots[at].place:
                    at = (at + 1) & self.mask
                self.slots[at].place, self.slots[at].tag = <int32_t> (i + 1), <uint32_t> (h >> 32)
        return 0

    # -- one id --------------------------------------------------------------------------------------------------------
    cdef Py_ssize_t of_number(self, int64_t number, bint add) noexcept nogil:
        cdef uint64_t h = mixed(<uint64_t> number ^ SEED)
        cdef Py_ssize_t at = h & self.mask
        cdef uint32_t tag = <uint32_t> (h >> 32)
        while self.slots[at].place:
            if self.slots[at].tag == tag and self.numbers[self.slots[at].place - 1] == number:
                return self.slots[at].place - 1
            at = (at + 1) & self.mask
        if not add:
            return UNKNOWN
        if self.size == self.room:
            return FULL
        self.numbers[self.size] = number
        self.size += 1
        self.slots[at].place, self.slots[at].tag = <int32_t> self.size, tag
        return self.size - 1

    cdef Py_ssize_t of_text(self, const uint8_t *text, Py_ssize_t size, bint add) noexcept nogil:
        cdef uint64_t h = hash_of(text, size)
        cdef Py_ssize_t at = h & self.mask, place, start
        cdef uint32_t tag = <uint32_t> (h >> 32)
        while self.slots[at].place:
            if self.slots[at].tag == tag:
                place = self.slots[at].place - 1
                start = self.numbers[place - 1] if place else 0
                if self.numbers[place] - start == size and memcmp(self.text + start, text, size) == 0:
                    return place
            at = (at + 1) & self.mask
        if not add:
            return UNKNOWN
        start = self.used()
        if self.size == self.room or start + size > self.text_room:
            return FULL
        memcpy(self.text + start, text, size)
        self.numbers[self.size], self.hashes[self.size] = start + size, h
        self.size += 1
        self.slots[at].place, self.slots[at].tag = <int32_t> self.size, tag
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
        cdef uint64_t[::1] slots
        cdef int64_t[::1] numbers
        cdef uint64_t[::1] hashes
        cdef uint8_t[::1] text
        other.is_text, other.size, other.mask, other.room = self.is_text, self.size, self.mask, self.room
        other.text_room = self.text_room
        other.held_slots, other.held_numbers = self.held_slots.copy(), self.held_numbers.copy()
        other.held_hashes, other.held_text = self.held_hashes.copy(), self.held_text.copy()
        slots, numbers, hashes, text = other.held_slots, other.held_numbers, other.held_hashes, other.held_text
        other.slots, other.numbers, other.hashes, other.text = <Slot *> &slots[0], &numbers[0], &hashes[0], &text[0]
        return other

    def integers(self):
        """The ids (size,) int64, a view, or of texts where each ends."""
        return self.held_numbers[: self.size]

    def utf8(self):
        """The texts one after another, uint8, a view."""
        return self.held_text[: self.used()]


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
