/* Taps of one direction, for the reference and for the vector code. */
#ifndef SL_IMAGE_RESIZE_TAPS_H
#define SL_IMAGE_RESIZE_TAPS_H

#include "image/resize.h"

enum {
    SL_TAP_BITS = 22,
    SL_TAP_HALF_BITS = 11,  /* tap = high * 2^11 + low, both of which a 16-bit multiplication takes */
    SL_TAP_GROUP = 4,       /* the vector code takes so many taps at once: fewer are filled up with zeros */
    SL_RESIZE_PADDING = 64, /* bytes that the vector code may touch behind the rows between the passes */
};

typedef struct sl_taps {
    int64_t outputs, stride; /* stride: taps from output to output, a multiple of the group */
    int64_t *first;          /* input of an output's first tap */
    int64_t *count;          /* taps with a value */
    int32_t *tap;
    /* For vector code: */
    int64_t *group_first; /* input of the first of the groups, which lie within the inputs */
    int64_t *groups;
    int32_t
        *pairs; /* per group: high of taps 0 and 1, of 2 and 3, low of 0 and 1, of 2 and 3; two 16-bit halves each */
    size_t capacity;
} sl_taps;

#ifdef SL_HAVE_AVX2
/* Rows [begin, end) of `from`, filtered along the row, to `out` with `stride` bytes from row to row. */
void sl_resize_rows_avx2(const sl_taps *taps, const sl_pixels *from, int64_t begin, int64_t end, unsigned char *out,
                         size_t stride);
/* All rows of the output, of `bytes` bytes each; `rows` are the filtered rows from input row `begin` on. */
void sl_resize_columns_avx2(const sl_taps *taps, const unsigned char *rows, int64_t begin, size_t stride,
                            unsigned char *out, size_t bytes);
#endif

#endif
