/* Any bytes as a file of measured costs: never an error, figures are never negative or NaN. */
#include <math.h>
#include <string.h>

#include "core/mem.h"
#include "cost/internal.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"{\"device\":\"cpu\",",
                                          "\"threads\":2,",
                                          "\"kind\":\"k\",",
                                          "\"seconds\":[1,null]}",
                                          "\n",
                                          "null",
                                          "-1",
                                          "1e999",
                                          NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_measure_cache *cache;
    double figures[2] = {0};
    FUZZ_REQUIRE(sl_measure_cache_open(sl_fuzz_file(data, size), "cpu", 2, &cache) == SL_OK);
    bool known = sl_measure_cache_get(cache, "k", figures, 2);
    FUZZ_REQUIRE(figures[0] >= 0 && figures[1] >= 0);
    figures[0] = 3, figures[1] = INFINITY;
    FUZZ_REQUIRE(sl_measure_cache_put(cache, "k", figures, 2) == SL_OK);
    sl_measure_cache_close(cache);
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    return known;
}
