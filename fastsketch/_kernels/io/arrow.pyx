"""Tables as rows: what any library hands over by Arrow's C interfaces (csrc/fs_arrow.h), without that library."""

from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport NAN
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t,
)
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, strchr, strcmp, strlen, strncmp

from fastsketch._kernels.level cimport follow
from fastsketch._kernels.linalg.blas cimport real

import numpy as np

follow()

cdef enum:
    # Kinds of columns: numbers, lists of numbers, and what is neither.
    OTHER
    NULLS
    BOOL
    INT8
    UINT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    UINT64
    FLOAT16
    FLOAT32
    FLOAT64
    DECIMAL32
    DECIMAL64
    DECIMAL128
    FIXED_LISTS                  # as many entries in every row as the type says
    LISTS
    LARGE_LISTS

    RUN = 32                     # columns that become rows together
    STRIP = 512                  # rows of them

# Most entries that an array may claim: so many of 16 bytes, and a few times as many before them, have an address.
cdef int64_t MOST = <int64_t> 1 << 56


cdef struct Column:
    int kind
    int item                     # kind of what lists hold
    Py_ssize_t width             # entries of a row; of LISTS and LARGE_LISTS the rows tell
    double scale                 # of decimals: how many make one


cdef int kind_of(const ArrowSchema* schema, double* scale) except -1:
    # the kind of a column that holds no others; scale[0] of decimals
    cdef const char* text = schema.format
    cdef const char* letters = "nbcCsSiIlLefg"
    cdef const char* letter
    cdef int power, bits = 128
    cdef size_t size = strlen(text)
    scale[0] = 1.0
    if schema.dictionary != NULL:
        return OTHER
    if size == 1:
        letter = strchr(letters, text[0])
        return OTHER if letter == NULL else NULLS + <int> (letter - letters)
    if strncmp(text, "d:", 2) == 0:
        parts = text[2:size].split(b",")
        power, bits = int(parts[1]), int(parts[2]) if len(parts) > 2 else 128
        scale[0] = 10.0 ** power
        return DECIMAL32 if bits == 32 else DECIMAL64 if bits == 64 else DECIMAL128 if bits == 128 else OTHER
    return OTHER


cdef int column_of(const ArrowSchema* schema, Column* out) except -1:
    # what a column is, as its type says
    out.item, out.width, out.scale = OTHER, 1, 1.0
    out.kind = kind_of(schema, &out.scale)
    if out.kind == OTHER and schema.dictionary == NULL and schema.n_children == 1:
        out.item = kind_of(schema.children[0], &out.scale)
        if out.item != OTHER:
            if strncmp(schema.format, "+w:", 3) == 0:
                out.kind, out.width = FIXED_LISTS, int(schema.format[3:])
            elif strcmp(schema.format, "+l") == 0:
                out.kind = LISTS
            elif strcmp(schema.format, "+L") == 0:
                out.kind = LARGE_LISTS
    return 0


cdef const ArrowSchema* checked_type(const ArrowSchema* schema) except NULL:
    # the same, if it has a type and the children that it counts
    cdef Py_ssize_t j
    if schema == NULL or schema.format == NULL or schema.n_children < 0 or (
            schema.n_children > 0 and schema.children == NULL):
        raise ValueError("a column without a type")
    for j in range(schema.n_children):
        if schema.children[j] == NULL or schema.children[j].format == NULL:
            raise ValueError("a column without a type")
    return schema


cdef list described(const ArrowSchema* schema):
    cdef Py_ssize_t j
    cdef const ArrowSchema* child
    found = []
    if strcmp(checked_type(schema).format, "+s") != 0:
        raise TypeError(f"expected a table, got Arrow data of type {schema.format.decode()!r}")
    for j in range(schema.n_children):
        child = checked_type(schema.children[j])
        name = "" if child.name == NULL else child.name.decode("utf-8", "replace")
        of = None if child.n_children != 1 else child.children[0].format.decode()
        found.append((name, child.format.decode(), of, child.dictionary != NULL))
    return found


def fields(capsule):
    """(name, format, format of what lists hold or None, whether it is encoded by a dictionary) for each column."""
    return described(<const ArrowSchema*> PyCapsule_GetPointer(capsule, "arrow_schema"))


cdef inline bint is_set(const uint8_t* bits, Py_ssize_t k) noexcept nogil:
    return bits[k >> 3] >> (k & 7) & 1


cdef inline double half(uint16_t x) noexcept nogil:
    # a float of 16 bits: sign, five bits of exponent, ten of fraction
    cdef int exponent = x >> 10 & 31
    cdef double value = x & 1023
    if exponent == 31:
        value = NAN if x & 1023 else 1e308 * 10
    elif exponent == 0:
        value = value / 16777216.0
    else:
        value = (value + 1024.0) * (<double> (1 << exponent)) / 33554432.0
    return -value if x >> 15 else value


cdef inline double wide(const uint64_t* x) noexcept nogil:
    # an integer of 128 bits, by its size and its sign: the halves of a small negative one are large
    cdef uint64_t low = x[0], high = x[1]
    cdef bint negative = high >> 63
    if negative:
        high = ~high + (low == 0)
        low = ~low + 1
    return (-1.0 if negative else 1.0) * (<double> high * 18446744073709551616.0 + <double> low)


ctypedef fused number:
    int8_t
    uint8_t
    int16_t
    uint16_t
    int32_t
    uint32_t
    int64_t
    uint64_t
    float
    double


cdef inline void cast(const number* x, Py_ssize_t n, real* out) noexcept nogil:
    cdef Py_ssize_t k
    for k in range(n):
        out[k] = <real> x[k]


cdef void convert(int kind, double scale, const void* data, Py_ssize_t first, Py_ssize_t n, real* out) noexcept nogil:
    # out = entries first .. first + n - 1 of a buffer
    cdef Py_ssize_t k
    if kind == FLOAT32:
        cast[float, real](<const float*> data + first, n, out)
    elif kind == FLOAT64:
        cast[double, real](<const double*> data + first, n, out)
    elif kind == INT8:
        cast[int8_t, real](<const int8_t*> data + first, n, out)
    elif kind == UINT8:
        cast[uint8_t, real](<const uint8_t*> data + first, n, out)
    elif kind == INT16:
        cast[int16_t, real](<const int16_t*> data + first, n, out)
    elif kind == UINT16:
        cast[uint16_t, real](<const uint16_t*> data + first, n, out)
    elif kind == INT32:
        cast[int32_t, real](<const int32_t*> data + first, n, out)
    elif kind == UINT32:
        cast[uint32_t, real](<const uint32_t*> data + first, n, out)
    elif kind == INT64:
        cast[int64_t, real](<const int64_t*> data + first, n, out)
    elif kind == UINT64:
        cast[uint64_t, real](<const uint64_t*> data + first, n, out)
    elif kind == BOOL:
        for k in range(n):
            out[k] = is_set(<const uint8_t*> data, first + k)
    elif kind == FLOAT16:
        for k in range(n):
            out[k] = <real> half((<const uint16_t*> data)[first + k])
    elif kind == DECIMAL32:
        for k in range(n):
            out[k] = <real> ((<const int32_t*> data)[first + k] / scale)
    elif kind == DECIMAL64:
        for k in range(n):
            out[k] = <real> ((<const int64_t*> data)[first + k] / scale)
    elif kind == DECIMAL128:
        for k in range(n):
            out[k] = <real> (wide((<const uint64_t*> data) + 2 * (first + k)) / scale)
    else:
        for k in range(n):
            out[k] = <real> NAN


cdef inline int kind_here(const real* x) noexcept nogil:
    # the kind of columns whose numbers need no conversion
    if real is float:
        return FLOAT32
    else:
        return FLOAT64


cdef inline bint without_nulls(const ArrowArray* array) noexcept nogil:
    return array.null_count == 0 or array.n_buffers == 0 or array.buffers[0] == NULL


cdef inline bint is_there(const ArrowArray* array, Py_ssize_t place) noexcept nogil:
    # whether the entry at `place` of the buffers is no null
    return without_nulls(array) or is_set(<const uint8_t*> array.buffers[0], place)


cdef inline bint is_sound(const ArrowArray* array, Py_ssize_t n_buffers) noexcept nogil:
    # whether what an array says of itself can be: counts that have a sum, and the buffers that its type has
    return (array != NULL and 0 <= array.length <= MOST and 0 <= array.offset <= MOST
            and array.n_buffers == n_buffers and array.buffers != NULL
            and (n_buffers < 2 or array.length == 0 or array.buffers[1] != NULL))


cdef inline bint is_column(const ArrowArray* array, int kind) noexcept nogil:
    # the same of an array of numbers of this kind; of nulls nothing is read but how many they are
    if kind == NULLS:
        return array != NULL and 0 <= array.length <= MOST and 0 <= array.offset <= MOST
    return is_sound(array, 2)


cdef int64_t start_of(const Column* of, const ArrowArray* child, Py_ssize_t place) noexcept nogil:
    # where the list at `place` of the buffers begins among the entries of all lists
    if of.kind == FIXED_LISTS:
        return place * of.width
    if of.kind == LISTS:
        return (<const int32_t*> child.buffers[1])[place]
    return (<const int64_t*> child.buffers[1])[place]


cdef inline int64_t length_of(const Column* of, const ArrowArray* child, Py_ssize_t place) noexcept nogil:
    # how long that list is; -1 unless it lies among these entries: no sum is made of what has not been looked at
    cdef int64_t start = start_of(of, child, place), end = start_of(of, child, place + 1)
    return end - start if 0 <= start <= end <= child.children[0].length else -1


cdef inline void values(const ArrowArray* array, int kind, double scale, Py_ssize_t place, Py_ssize_t n,
                        real* out) noexcept nogil:
    # out = n entries from `place` of the buffers on, NaN for nulls
    cdef Py_ssize_t k
    if kind == NULLS:  # which has no buffers
        convert(kind, scale, NULL, place, n, out)
        return
    if kind == kind_here(out):
        memcpy(out, <const char*> array.buffers[1] + place * sizeof(real), n * sizeof(real))
    else:
        convert(kind, scale, array.buffers[1], place, n, out)
    for k in range(0 if without_nulls(array) else n):
        if not is_set(<const uint8_t*> array.buffers[0], place + k):
            out[k] = <real> NAN


cdef void numbers(const ArrowArray* table, const Column* kinds, Py_ssize_t first, Py_ssize_t n, Py_ssize_t run,
                  const Py_ssize_t* chosen, real* out, Py_ssize_t ld, real* space) noexcept nogil:
    # out[:, k] = rows first .. first + n - 1 of column k of `run`
    cdef const real* column[RUN]
    cdef real* at
    cdef const Column* of
    cdef const ArrowArray* child
    cdef Py_ssize_t k, place
    for k in range(run):
        of, child = &kinds[chosen[k]], table.children[chosen[k]]
        place = table.offset + child.offset + first
        if of.kind == kind_here(out) and without_nulls(child) and <uintptr_t> child.buffers[1] % sizeof(real) == 0:
            column[k] = <const real*> child.buffers[1] + place
            continue
        at = space + k * STRIP
        values(child, of.kind, of.scale, place, n, at)
        column[k] = at
    # out = columns.T, as in NumPy
    columns(n, run, column, out, ld)


cdef Py_ssize_t lists(const Column* of, const ArrowArray* child, Py_ssize_t place, Py_ssize_t n, Py_ssize_t width,
                      real* out, Py_ssize_t ld) noexcept nogil:
    # out[i, :width] = the list at place + i of the buffers, up to one of another length: how many lists were right
    cdef const ArrowArray* items = child.children[0]
    cdef Py_ssize_t i, k
    cdef bint whole = without_nulls(child)
    for i in range(n):
        if not whole and not is_there(child, place + i):
            for k in range(width):
                out[i * ld + k] = <real> NAN
            continue
        if length_of(of, child, place + i) != width:
            return i
        values(items, of.item, of.scale, items.offset + start_of(of, child, place + i), width, out + i * ld)
    return n


cdef Py_ssize_t fill_rows(const ArrowArray* table, const Column* kinds, Py_ssize_t first, Py_ssize_t n, Py_ssize_t m,
                          const Py_ssize_t* chosen, const Py_ssize_t* places, const Py_ssize_t* widths, real* out,
                          Py_ssize_t ld, real* space, Py_ssize_t* wrong) noexcept nogil:
    # n, or the first row with a list of another length; wrong[0]: which of the chosen columns has it
    cdef Py_ssize_t strip = 0, k, run, count, right
    cdef const ArrowArray* child
    while strip < n:
        count = min(<Py_ssize_t> STRIP, n - strip)
        k = 0
        while k < m:
            run = 1
            if kinds[chosen[k]].kind >= FIXED_LISTS:
                child, wrong[0] = table.children[chosen[k]], k
                right = lists(&kinds[chosen[k]], child, table.offset + child.offset + first + strip, count, widths[k],
                              out + strip * ld + places[k], ld)
                if right < count:
                    return strip + right
            else:
                while (run < RUN and k + run < m and places[k + run] == places[k] + run
                       and kinds[chosen[k + run]].kind < FIXED_LISTS):
                    run += 1
                numbers(table, kinds, first + strip, count, run, chosen + k, out + strip * ld + places[k], ld, space)
            k += run
        strip += count
    return n


cdef class Batch:
    """Rows of a table, column by column: what ``__arrow_c_array__`` gives, as two capsules."""

    cdef ArrowArray array
    cdef Column* columns
    cdef readonly Py_ssize_t n_rows

    def __init__(self, schema, array):
        cdef const ArrowSchema* described = <const ArrowSchema*> PyCapsule_GetPointer(schema, "arrow_schema")
        cdef ArrowArray* given = <ArrowArray*> PyCapsule_GetPointer(array, "arrow_array")
        if given.release == NULL or self.array.release != NULL:
            raise ValueError("the array has been given away")
        self.array = given[0]
        given.release = NULL
        self._open(described)

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)
        free(self.columns)

    cdef int _open(self, const ArrowSchema* schema) except -1:
        cdef Py_ssize_t j, d = checked_type(schema).n_children
        cdef Column* column
        cdef const ArrowArray* child
        if strcmp(schema.format, "+s") != 0 or self.array.n_children != d:
            raise TypeError("expected a table")
        if not is_sound(&self.array, 1) or (d > 0 and self.array.children == NULL):
            raise ValueError("a table whose rows cannot be counted")
        self.n_rows = self.array.length
        if not without_nulls(&self.array):
            for j in range(self.n_rows):
                if not is_there(&self.array, self.array.offset + j):
                    raise ValueError(f"a table whose rows are null: row {j} is")
        self.columns = <Column*> calloc(max(d, 1), sizeof(Column))
        if self.columns == NULL:
            raise MemoryError
        for j in range(d):
            column, child = &self.columns[j], self.array.children[j]
            column_of(checked_type(schema.children[j]), column)
            if column.kind != OTHER and not self._is_whole(column, child):
                raise ValueError(f"column {j} has fewer entries than rows, or not those of its type")
        return 0

    cdef bint _is_whole(self, const Column* column, const ArrowArray* child) noexcept:
        # whether a column has an entry for every row, and what is read of it is there
        cdef const ArrowArray* items
        if column.kind < FIXED_LISTS:
            return is_column(child, column.kind) and child.length >= self.array.offset + self.n_rows
        if not is_sound(child, 1 if column.kind == FIXED_LISTS else 2) or (
                child.length < self.array.offset + self.n_rows or child.n_children != 1 or child.children == NULL):
            return False
        items = child.children[0]
        # of lists of one length their places are counted, of others looked at: length_of
        return is_column(items, column.item) and (column.kind != FIXED_LISTS or column.width == 0 or (
            column.width > 0 and items.length // column.width >= child.offset + child.length))

    def first_width(self, Py_ssize_t column):
        """How many numbers a row of a column has: 1, or the length of the first list that is there."""
        cdef const Column* of = self._column(column, 0)
        cdef const ArrowArray* child = self.array.children[column]
        cdef int64_t length
        cdef Py_ssize_t row, place = self.array.offset + child.offset
        for row in range(self.n_rows if of.kind >= FIXED_LISTS else 0):
            if is_there(child, place + row):
                length = length_of(of, child, place + row)
                if length < 0:
                    raise ValueError(f"column {column} has a list in row {row} that lies outside its entries")
                return length
        return 1

    cdef Column* _column(self, Py_ssize_t column, Py_ssize_t row) except NULL:
        if not (0 <= column < self.array.n_children and 0 <= row < self.n_rows):
            raise IndexError(f"there is no column {column}, or no row {row} of it")
        if self.columns[column].kind == OTHER:
            raise TypeError(f"column {column} holds no numbers")
        return &self.columns[column]

    def to_rows(self, Py_ssize_t first, const Py_ssize_t[::1] columns, const Py_ssize_t[::1] places,
                const Py_ssize_t[::1] widths, real[:, ::1] out):
        """Rows first .. first + len(out) - 1 of some columns: number k goes to out[:, places[k] : places[k] + widths[k]].

        Columns are given in the order of their places. Nulls become NaN. Returns None, or the first row with a list of
        another length, as (row, column, length).
        """
        cdef Py_ssize_t n = out.shape[0], d = out.shape[1], m = columns.shape[0], k = 0, before = 0, right
        cdef const ArrowArray* child
        if not (places.shape[0] == widths.shape[0] == m and 0 <= first <= self.n_rows - n):
            raise ValueError("rows, columns and places do not belong together")
        if n == 0 or m == 0:
            return None
        for k in range(m):
            self._column(columns[k], first)
            if places[k] < before or widths[k] < 0 or places[k] + widths[k] > d or (
                    self.columns[columns[k]].kind < FIXED_LISTS and widths[k] != 1):
                raise ValueError("places of columns do not belong to these rows")
            before = places[k] + widths[k]
        cdef real[::1] space = np.empty(RUN * STRIP, np.asarray(out).dtype)
        with nogil:
            right = fill_rows(&self.array, self.columns, first, n, m, &columns[0], &places[0], &widths[0], &out[0, 0],
                              d, &space[0], &k)
        if right == n:
            return None
        child, first = self.array.children[columns[k]], first + right
        return first, columns[k], length_of(&self.columns[columns[k]], child, self.array.offset + child.offset + first)


cdef class Stream:
    """Batches of a table one after another: what ``__arrow_c_stream__`` gives."""

    cdef ArrowArrayStream stream
    cdef ArrowSchema schema

    def __init__(self, capsule):
        cdef ArrowArrayStream* given = <ArrowArrayStream*> PyCapsule_GetPointer(capsule, "arrow_array_stream")
        if given.release == NULL or self.stream.release != NULL:
            raise ValueError("the stream has been given away")
        self.stream = given[0]
        given.release = NULL
        cdef int status
        with nogil:
            status = self.stream.get_schema(&self.stream, &self.schema)
        self._check(status)

    def __dealloc__(self):
        if self.schema.release != NULL:
            self.schema.release(&self.schema)
        if self.stream.release != NULL:
            self.stream.release(&self.stream)

    cdef int _check(self, int status) except -1:
        cdef const char* text
        if status:
            text = self.stream.get_last_error(&self.stream)
            raise OSError(status, "" if text == NULL else text.decode("utf-8", "replace"))
        return 0

    def fields(self):
        """As the function."""
        return described(&self.schema)

    def next(self):
        """The next batch, None at the end; OSError with what its library says."""
        cdef Batch batch = Batch.__new__(Batch)
        cdef int status
        with nogil:
            status = self.stream.get_next(&self.stream, &batch.array)
        self._check(status)
        if batch.array.release == NULL:
            return None
        batch._open(&self.schema)
        return batch
