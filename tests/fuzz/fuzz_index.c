/* Any bytes as model.safetensors.index.json, or behind a zero byte as config.json, beside a good shard: refused in one sentence, or every
 * tensor that the index names can be read. */
#include <string.h>
#include <unistd.h>

#include "core/file.h"
#include "fuzz/fuzz.h"
#include "model/safetensors.h"

const char *const sl_fuzz_dictionary[] = {"\"weight_map\":{",
                                          "\"metadata\":{\"total_size\":",
                                          "\"w.weight\":\"model-1.safetensors\"",
                                          "\"w.weight_scale\":\"model-1.safetensors\"",
                                          "../",
                                          "model-2.safetensors",
                                          "\"quantization_config\":{",
                                          "\"weight_block_size\":[1,2]",
                                          "\"block_structure\":[3,1]",
                                          "\"rope_interleaved\":true",
                                          "{}",
                                          NULL};

static char folder[64], index_path[128], config_path[128];

static void put(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    FUZZ_REQUIRE(file && fwrite(bytes, 1, length, file) == length && fclose(file) == 0);
}

static void begin(void)
{
    static const int64_t dims[2][2] = {{4, 6}, {2, 3}};
    char path[128];
    sl_tensors_writer *writer;
    static const unsigned char data[48];
    snprintf(folder, sizeof folder, "/tmp/sluice-fuzz-index-%d", (int) getpid());
    snprintf(index_path, sizeof index_path, "%s/model.safetensors.index.json", folder);
    snprintf(config_path, sizeof config_path, "%s/config.json", folder);
    snprintf(path, sizeof path, "%s/model-1.safetensors", folder);
    FUZZ_REQUIRE(sl_dir_create(folder) == SL_OK);
    FUZZ_REQUIRE(sl_tensors_writer_open(path, &writer) == SL_OK);
    FUZZ_REQUIRE(sl_tensors_writer_declare(writer, "w.weight", SL_FILE_F8_E4M3, 2, dims[0]) == SL_OK);
    FUZZ_REQUIRE(sl_tensors_writer_declare(writer, "w.weight_scale", SL_FILE_F32, 2, dims[1]) == SL_OK);
    FUZZ_REQUIRE(sl_tensors_writer_write(writer, data, 48) == SL_OK);
    FUZZ_REQUIRE(sl_tensors_writer_commit(writer, NULL) == SL_OK);
    sl_tensors_writer_destroy(writer);
}

static void end(void)
{
    if (folder[0])
        sl_dir_remove(folder);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    static const char good[] = "{\"weight_map\":{\"w.weight\":\"model-1.safetensors\"}}";
    const uint8_t *zero = memchr(data, 0, size);
    size_t length = zero ? (size_t) (zero - data) : size;
    sl_tensors *tensors;
    float out[24];
    int readable = 0;
    if (!folder[0]) {
        begin();
        atexit(end);
    }
    put(index_path, length ? (const void *) data : good, length ? length : sizeof good - 1);
    put(config_path, zero ? (const void *) (zero + 1) : "{}", zero ? size - length - 1 : 2);
    if (sl_tensors_open(folder, &tensors) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 0;
    }
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        FUZZ_REQUIRE(tensor->count <= 24);
        readable += sl_tensors_read(tensors, tensor, 0, tensor->count, SL_F32, out) == SL_OK;
    }
    sl_tensors_close(tensors);
    return readable + 1;
}
