/* Part of fs_svmlight.c, included once per level. */
#ifndef FS_DOORS

FS_LOOP void NAME(svm_count)(const char *text, ptrdiff_t size, ptrdiff_t *newlines, ptrdiff_t *colons)
{
    ptrdiff_t lines = 0, values = 0;
    for (ptrdiff_t i = 0; i < size; i++) {
        lines += text[i] == '\n';
        values += text[i] == ':';
    }
    *newlines = lines;
    *colons = values;
}

#else

FS_DOOR(FS_TABLE_FROM_AVX2, void, svm_count, (const char *text, ptrdiff_t size, ptrdiff_t *newlines, ptrdiff_t *colons),
        (text, size, newlines, colons))

#endif
