/* A fast 64-bit hash for checksums and look-ups (not against adversaries), fed in pieces of any size: the result
 * depends on the bytes alone. Little-endian, the same on every machine; test vectors in tests/core. */
#ifndef SL_CORE_HASH_H
#define SL_CORE_HASH_H

#include <stddef.h>
#include <stdint.h>

typedef struct sl_hasher {
    uint64_t lane[4];
    uint64_t length;
    unsigned char tail[32];
} sl_hasher;
void sl_hash_begin(sl_hasher *hasher, uint64_t seed);
void sl_hash_add(sl_hasher *hasher, const void *bytes, size_t length);
uint64_t sl_hash_end(const sl_hasher *hasher);
uint64_t sl_hash64(const void *bytes, size_t length, uint64_t seed);

#endif
