/* Parser for blocks of text with a number in every cell: columns divided by one character, or by blanks.
 *
 * A cell is a decimal finite number with blanks around it, perhaps in quotes; or it is missing: empty, or one of NA,
 * n/a, NaN, null, none, ?, in letters of any case. Cells that are not read may be anything; a cell that begins with a
 * quote ends with one on its line, "" within it is a quote, and no other cell holds quotes. Every line that is not
 * blank has as many cells. What is nothing of this is an error.
 *
 * A block is cut at line ends into parts by its size alone, which are parsed on the pool's threads.
 */
#ifndef FS_TABLE_H
#define FS_TABLE_H
#include "fs_common.h"
#include "fs_pool.h"

enum {
    FS_TABLE_DONE = 0,
    FS_TABLE_FEW = -1,    /* cells in a line: `column` of them */
    FS_TABLE_MANY = -2,   /* cells in a line: at least `column` + 1 */
    FS_TABLE_WORD = -3,   /* in the place of a number */
    FS_TABLE_OPEN = -4,   /* quote that does not close on its line */
    FS_TABLE_AFTER = -5,  /* something between a closing quote and the end of the cell */
    FS_TABLE_QUOTE = -6,  /* within a cell that does not begin with one */
    FS_TABLE_RETURN = -7, /* \r that does not belong to a newline */
};

/* What becomes of a column, in place of where it goes in the rows. */
enum { FS_TABLE_SKIP = -1, FS_TABLE_BESIDE = -2 };

/* Lines of a block. */
typedef struct {
    ptrdiff_t from, stop;    /* bytes of the block's text */
    ptrdiff_t first_row;     /* where its rows begin */
    ptrdiff_t room, rows;    /* at most so many rows; those found */
    ptrdiff_t pos, line;     /* where reading ended, and newlines before it */
    ptrdiff_t column;        /* that an error is about */
    ptrdiff_t slow, missing; /* numbers that are left to fs_table_place; cells without one */
    int status;
} fs_table_part;

typedef struct {
    const char *text;
    ptrdiff_t size;        /* bytes of text, ending with a newline */
    char delimiter;        /* ' ': any blanks */
    char decimal;          /* '.' or ',': the point of a number */
    ptrdiff_t width, n;    /* cells of a line; numbers of a row */
    const int32_t *places; /* (width,) where the number of each column goes in its row, or what becomes of it */
    ptrdiff_t n_parts;
    fs_table_part part[FS_PARTS];
    ptrdiff_t rows;              /* by fs_table_cut a bound, by fs_table_parse those found */
    ptrdiff_t pos, line, column; /* of the error, or of the end */
    ptrdiff_t slow, missing;
    double *out;     /* (rows, n) */
    int64_t *beside; /* (rows, 2) place in the text and length of the cell that lies beside a row, or NULL */
} fs_table_block;

/* Cut text into parts of about so many bytes at least, and bound the rows; width, delimiter, decimal and places are set
 * after it. */
void fs_table_cut(fs_table_block *block, const char *text, ptrdiff_t size, ptrdiff_t width, ptrdiff_t least);

/* Returns the status of the first error. Missing numbers are NaN. */
int fs_table_parse(fs_table_block *block, double *out, int64_t *beside);

/* A number that needs a full conversion, of which there are `slow`, is stored as a NaN that holds its place in the
 * text. That place, -1 for any other number; and the bytes up to the end of the number that starts at p. */
ptrdiff_t fs_table_place(double value);
ptrdiff_t fs_table_length(const char *p, char decimal);

#endif
