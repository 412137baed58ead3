/* Any bytes as a hardware profile; what is accepted makes sense. */
#include <math.h>
#include <string.h>

#include "core/hash.h"
#include "core/mem.h"
#include "device/device.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"\"device_memory_bytes\":",
                                          "\"24GiB\"",
                                          "\"matmul_efficiency_bf16\":0.5",
                                          "\"shared_cores\":true",
                                          "\"name\":\"\"",
                                          "1e308",
                                          "-1",
                                          "null",
                                          ",",
                                          "\"link_latency_s\":",
                                          "max",
                                          NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_hardware hw;
    sl_status status = sl_hardware_parse("fuzz", (const char *) data, size, &hw);
    if (status == SL_OK) {
        FUZZ_REQUIRE(hw.name[0] && strlen(hw.name) < sizeof hw.name);
        FUZZ_REQUIRE(isfinite(hw.peak_flops[SL_F32]) && hw.peak_flops[SL_F32] > 0 &&
                     hw.matmul_efficiency[SL_BF16] <= 1);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            FUZZ_REQUIRE(hw.memory_bytes[tier] > 0 && hw.memory_bytes[tier] <= INT64_MAX);
    } else {
        FUZZ_REQUIRE(status == SL_E_FORMAT && sl_error_message()[0]);
    }
    FUZZ_REQUIRE(sl_heap_bytes() == 0);
    const char *tail = status == SL_OK ? "" : strrchr(sl_error_message(), ':');
    return status == SL_OK ? 1 : tail ? (int) (sl_hash64(tail, strlen(tail), 0) & 0x7fff) : 2;
}
