/* A keyed permutation of [0, n): the shuffled order of an epoch as a pure function, so that any position can be asked for
 * (resume) and no array of the data's size exists. */
#ifndef SL_DATA_PERMUTE_H
#define SL_DATA_PERMUTE_H

#include <stdint.h>

/* Where `index` goes, in [0, n). Bijective for every (key, round). n from 1 to 2^62. */
int64_t sl_permute(int64_t index, int64_t n, uint64_t key, uint64_t round);

#endif
