/* A fuzz target is a program made of one function and tests/fuzz/driver.c: it must take any bytes without crashing, leaking
 * or running long, and may check what must hold for every input (CHECK-like conditions through FUZZ_REQUIRE).
 * tests/fuzz/corpus/<name>/ holds seeds for fuzz_<name>.c; a dictionary of words the format knows makes mutation clever. */
#ifndef SL_TESTS_FUZZ_FUZZ_H
#define SL_TESTS_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Both are defined by each fuzz_*.c. The dictionary ends with NULL and may be empty. */
int sl_fuzz_one(const uint8_t *data, size_t size);
extern const char *const sl_fuzz_dictionary[];

#define FUZZ_REQUIRE(cond)                                             \
    do {                                                               \
        if (!(cond)) {                                                 \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
            abort();                                                   \
        }                                                              \
    } while (0)

/* For parsers that read a path: writes the bytes to a file of this process, the same one each time, and returns its path. */
const char *sl_fuzz_file(const uint8_t *data, size_t size);

#endif
