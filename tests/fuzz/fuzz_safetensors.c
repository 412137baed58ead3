/* Any bytes as a safetensors file: refused in one sentence, or every tensor lies inside the file and can be read. */
#include "fuzz/fuzz.h"
#include "model/safetensors.h"

const char *const sl_fuzz_dictionary[] = {"\"dtype\":\"F32\"",
                                          "\"dtype\":\"BF16\"",
                                          "\"dtype\":\"F16\"",
                                          "\"dtype\":\"U8\"",
                                          "\"dtype\":\"F8_E4M3\"",
                                          "\"dtype\":\"F8_E8M0\"",
                                          "_scale",
                                          "_scale_inv",
                                          "\"shape\":[",
                                          "\"data_offsets\":[",
                                          "\"__metadata__\":{",
                                          "9223372036854775807",
                                          "0,0",
                                          "\x08\x00\x00\x00\x00\x00\x00\x00",
                                          "[]",
                                          "{}",
                                          NULL};

static void read_all(sl_tensors *tensors, const sl_tensor *tensor)
{
    float out[64];
    for (int64_t at = 0; at < tensor->count; at += 64) {
        int64_t count = tensor->count - at < 64 ? tensor->count - at : 64;
        if (sl_tensors_read(tensors, tensor, at, count, SL_F32, out) != SL_OK)
            return;
    }
    if (tensor->rank == 2 && tensor->dim[0] > 0 && tensor->dim[0] <= 64 && tensor->dim[1] > 0)
        FUZZ_REQUIRE(sl_tensors_read_transposed(tensors, tensor, tensor->dim[1] - 1, 1, SL_F32, out) == SL_OK);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_tensors *tensors;
    int64_t total = 0;
    if (sl_tensors_open(sl_fuzz_file(data, size), &tensors) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 0;
    }
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        FUZZ_REQUIRE(tensor->offset >= 8 && tensor->bytes >= 0 && tensor->offset + tensor->bytes <= (int64_t) size);
        FUZZ_REQUIRE(sl_tensors_find(tensors, tensor->name) == tensor);
        total += tensor->bytes;
        read_all(tensors, tensor);
    }
    FUZZ_REQUIRE(total <= (int64_t) size);
    int found = (int) (sl_tensors_count(tensors) % 50) + 1;
    sl_tensors_close(tensors);
    return found;
}
