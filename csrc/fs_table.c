#include "fs_table.h"

#include <string.h>

#include "fs_number.h"

/* Of a quiet NaN; a place in the text stands in the bits below, from 1 on: 0 is a number that is missing. */
static const uint64_t quiet_nan = UINT64_C(0x7ff8) << 48;

static double nan_at(ptrdiff_t place)
{
    const uint64_t bits = quiet_nan | (uint64_t)(place + 1);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ptrdiff_t fs_table_place(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (bits & quiet_nan) == quiet_nan ? (ptrdiff_t)(bits & ~quiet_nan) - 1 : -1;
}

ptrdiff_t fs_table_length(const char *p, char decimal)
{
    const char *end = p;
    while (fs_is_digit(*end) || *end == decimal || *end == '-' || *end == '+' || *end == 'e' || *end == 'E')
        end++;
    return end - p;
}

/* Whether the cell [p, end), without blanks around it, stands for a number that is not there. */
static int is_missing(const char *p, const char *end)
{
    static const char *const words[] = {"na", "n/a", "nan", "null", "none", "?"};
    const size_t length = (size_t)(end - p);
    if (length == 0)
        return 1;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        size_t i = 0;
        if (strlen(words[w]) != length)
            continue;
        while (i < length && (p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 32 : p[i]) == words[w][i])
            i++;
        if (i == length)
            return 1;
    }
    return 0;
}

void fs_table_cut(fs_table_block *block, const char *text, ptrdiff_t size, ptrdiff_t width, ptrdiff_t least)
{
    ptrdiff_t from = 0;
    memset(block, 0, sizeof *block);
    block->text = text;
    block->size = size;
    block->width = width;
    block->n_parts = fs_pool_parts((double)size, (double)least);
    for (ptrdiff_t k = 0; k < block->n_parts; k++) {
        fs_table_part *part = block->part + k;
        ptrdiff_t stop = fs_pool_from(size, block->n_parts, k + 1, 1);
        ptrdiff_t newlines = 0;
        if (stop < from)
            stop = from; /* within a line that is longer than a part */
        if (stop < size && stop > from && text[stop - 1] != '\n') {
            const char *newline = memchr(text + stop, '\n', (size_t)(size - stop));
            stop = newline ? newline + 1 - text : size;
        }
        for (ptrdiff_t i = from; i < stop; i++)
            newlines += text[i] == '\n';
        part->from = from;
        part->stop = from = stop;
        part->first_row = block->rows;
        /* a row of `width` cells takes as many bytes: which bounds the memory for lines that are too short */
        part->room = (stop - part->from) / width;
        if (part->room > newlines)
            part->room = newlines;
        block->rows += part->room;
    }
}

/* The end of the cell that starts at p: a delimiter, a newline or a return; NULL for a quote in it. */
static const char *cell_end(const char *p, const char *stop, char delimiter)
{
    for (; p < stop; p++) {
        const char c = *p;
        if (c == delimiter || c == '\n' || c == '\r' || (delimiter == ' ' && c == '\t'))
            return p;
        if (c == '"')
            return NULL;
    }
    return p;
}

/* The closing quote of the cell whose first byte after its quote is p; NULL if there is none on the line. */
static const char *closing_quote(const char *p, const char *stop)
{
    for (; p < stop && *p != '\n'; p++)
        if (*p == '"') {
            if (p + 1 == stop || p[1] != '"')
                return p;
            p++;
        }
    return NULL;
}

static void parse_part(void *context, ptrdiff_t k, void *scratch)
{
    fs_table_block *block = context;
    fs_table_part part = block->part[k]; /* of this thread alone: others write to those beside it */
    const char *const text = block->text;
    const char *p = text + part.from;
    const char *const stop = text + part.stop;
    const char delimiter = block->delimiter, point = block->decimal;
    const char bare = point == delimiter ? '\0' : point; /* without quotes, what divides columns is no point */
    const char tab = delimiter == '\t' ? ' ' : '\t';     /* a blank, where it divides nothing */
    const int32_t *const places = block->places;
    const ptrdiff_t width = block->width;
    (void)scratch;
    while (p < stop) {
        const char *q = p;
        double *row, nowhere;
        ptrdiff_t column = 0;
        const int full = part.rows == part.room; /* then this line is too short, but it may have other faults before */
        while (*q == ' ' || *q == tab || *q == '\r')
            q++;
        if (*q == '\n') { /* a blank line; one of tabs that divide columns is a row of numbers that are missing */
            p = q + 1;
            part.line++;
            continue;
        }
        row = block->out + (part.first_row + part.rows) * block->n;
        for (;; column++) {
            const char *start, *end, *after;
            double *value;
            int32_t place;
            while (*p == ' ' || *p == tab)
                p++;
            part.column = column;
            if (column == width) {
                part.status = FS_TABLE_MANY;
                break;
            }
            place = places[column];
            value = full || place < 0 ? &nowhere : &row[place];
            start = p;
            if (*p == '"') {
                start = p + 1;
                end = closing_quote(start, stop);
                if (!end) {
                    part.status = FS_TABLE_OPEN;
                    break;
                }
                after = end + 1;
                while (*after == ' ' || *after == tab)
                    after++;
                if (*after != delimiter && *after != '\n' && *after != '\r') {
                    part.status = FS_TABLE_AFTER;
                    break;
                }
            } else {
                const char *number_end;
                if (place >= 0) { /* most cells: a number, and what ends it */
                    const int kind = fs_read_number(p, stop, bare, value, &number_end);
                    after = number_end;
                    while (*after == ' ' || *after == tab)
                        after++;
                    if (kind >= 0 && (*after == delimiter || *after == '\n' || *after == '\r' ||
                                      (delimiter == ' ' && after > number_end))) {
                        if (kind) {
                            *value = nan_at(p - text);
                            part.slow++;
                        }
                        place = FS_TABLE_SKIP;
                        end = number_end;
                        goto ended;
                    }
                }
                end = cell_end(p, stop, delimiter);
                if (!end) {
                    part.status = FS_TABLE_QUOTE;
                    break;
                }
                after = end;
            }
            while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
                end--;
            while (start < end && (*start == ' ' || *start == '\t'))
                start++;
            if (place == FS_TABLE_BESIDE && !full) {
                block->beside[2 * (part.first_row + part.rows)] = start - text;
                block->beside[2 * (part.first_row + part.rows) + 1] = end - start;
            } else if (place >= 0) {
                const char *number_end = start;
                const int kind = fs_read_number(start, end, point, value, &number_end);
                if (kind >= 0 && number_end == end) {
                    if (kind) {
                        *value = nan_at(start - text);
                        part.slow++;
                    }
                } else if (is_missing(start, end)) {
                    *value = nan_at(-1);
                    part.missing++;
                } else {
                    p = start;
                    part.status = FS_TABLE_WORD;
                    break;
                }
            }
        ended:
            p = after;
            if (delimiter == ' ')
                while (*p == ' ' || *p == '\t')
                    p++;
            if (*p == delimiter) {
                p++;
                continue;
            }
            if (*p == '\r') {
                const char *r = p;
                while (*r == '\r')
                    r++;
                if (*r != '\n') {
                    part.status = FS_TABLE_RETURN;
                    break;
                }
                p = r;
            }
            if (*p != '\n')
                continue; /* after blanks that divide columns */
            if (column + 1 < width) {
                part.column = column + 1;
                part.status = FS_TABLE_FEW;
                break;
            }
            p++;
            part.line++;
            part.rows++;
            break;
        }
        if (part.status != FS_TABLE_DONE)
            break;
    }
    part.pos = p - text;
    block->part[k] = part;
}

int fs_table_parse(fs_table_block *block, double *out, int64_t *beside)
{
    int status = FS_TABLE_DONE;
    block->out = out;
    block->beside = beside;
    block->rows = 0;
    fs_pool_run(block->n_parts, parse_part, block, NULL, 0);
    for (ptrdiff_t k = 0; k < block->n_parts && status == FS_TABLE_DONE; k++) {
        const fs_table_part *part = block->part + k;
        if (part->first_row > block->rows) { /* blank lines */
            const size_t n = (size_t)(part->rows * block->n);
            memmove(out + block->rows * block->n, out + part->first_row * block->n, n * sizeof *out);
            if (beside)
                memmove(beside + 2 * block->rows, beside + 2 * part->first_row,
                        2 * (size_t)part->rows * sizeof *beside);
        }
        block->rows += part->rows;
        block->line += part->line;
        block->pos = part->pos;
        block->column = part->column;
        block->slow += part->slow;
        block->missing += part->missing;
        status = part->status;
    }
    return status;
}
