/* Weights in types that only files have: every value of each, scales of every form, and what is refused. The expected values are
 * PyTorch's (tests/golden/make_dtypes.py) or those of arithmetic that knows nothing of bits. */
#include "core/bf16.h"
#include "core/file.h"
#include "core/small_float.h"
#include "model/internal.h"
#include "model/interpret.h"

static sl_tensors *open_golden(void)
{
    char path[512];
    sl_tensors *tensors;
    snprintf(path, sizeof path, "%s/tests/golden/dtypes", SL_SOURCE_DIR);
    CHECK_OK(sl_tensors_open(path, &tensors));
    return tensors;
}

static const sl_tensor *find(const sl_tensors *tensors, const char *name, const char *end)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s", name, end);
    const sl_tensor *tensor = sl_tensors_find(tensors, full);
    REQUIRE(tensor != NULL);
    return tensor;
}

/* Of equal bits, where neither is a NaN: those of NaN may differ. */
static bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

static float bf16_of(float value)
{
    return sl_bf16_to_f32(sl_f32_to_bf16(value));
}

static void check_pieces(sl_tensors *tensors, const char *name)
{
    enum { MOST = 256 };
    float want[MOST], got[MOST];
    sl_bf16 rounded[MOST];
    const sl_tensor *x = find(tensors, name, ""), *y = find(tensors, name, ".f32");
    REQUIRE(x->count == y->count && x->count <= MOST);
    CHECK_OK(sl_tensors_read(tensors, y, 0, y->count, SL_F32, want));
    for (int64_t length = 1; length <= x->count; length += length / 2 + 5)
        for (int64_t first = 0; first + length <= x->count; first += SL_MAX(1, length / 3)) {
            int64_t equal = 0;
            CHECK_OK(sl_tensors_read(tensors, x, first, length, SL_F32, got));
            CHECK_OK(sl_tensors_read(tensors, x, first, length, SL_BF16, rounded));
            for (int64_t i = 0; i < length; i++)
                equal += same(got[i], want[first + i]) && same(sl_bf16_to_f32(rounded[i]), bf16_of(want[first + i]));
            CHECK_MSG(equal == length, "%s: elements %lld of length %lld", name, (long long) first, (long long) length);
        }
}

TEST(every_value_as_pytorch_reads_it)
{
    sl_tensors *tensors = open_golden();
    check_pieces(tensors, "e4m3");
    check_pieces(tensors, "e5m2");
    check_pieces(tensors, "e8m0");
    sl_tensors_close(tensors);
}

TEST(every_value_by_its_definition)
{
    for (int i = 0; i < 256; i++) {
        int e = i >> 3 & 15, m = i & 7, e5 = i >> 2 & 31, m2 = i & 3;
        double sign = i & 128 ? -1 : 1, e4m3 = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        double e5m2 = e5 ? ldexp(4 + m2, e5 - 17) : ldexp(m2, -16);
        float a = sl_e4m3_to_f32((uint8_t) i), b = sl_e5m2_to_f32((uint8_t) i), c = sl_e8m0_to_f32((uint8_t) i);
        CHECK((i & 127) == 127 ? isnan(a) : (double) a == sign * e4m3 && !signbit(a) == !(i & 128));
        if (e5 == 31)
            CHECK(m2 ? isnan(b) : isinf(b) && !signbit(b) == !(i & 128));
        else
            CHECK((double) b == sign * e5m2 && !signbit(b) == !(i & 128));
        CHECK(i == 255 ? isnan(c) : (double) c == ldexp(1, i - 127));
    }
}

/* Each half comes back, and so does whatever rounds to it: what lies between two goes to the nearer, or to the even one. */
TEST(rounding_to_halves)
{
    for (int i = 0; i < 65536; i++) {
        float value = sl_f16_to_f32((uint16_t) i);
        if (isnan(value)) {
            CHECK(isnan(sl_f16_to_f32(sl_f32_to_f16(value))));
            continue;
        }
        CHECK_I64(sl_f32_to_f16(value), i);
        if ((i & 0x7fff) >= 0x7bff)
            continue;
        float next = sl_f16_to_f32((uint16_t) (i + 1)), middle = value + (next - value) / 2;
        CHECK_I64(sl_f32_to_f16(middle), i + (i & 1));
        CHECK_I64(sl_f32_to_f16(nextafterf(middle, value)), i);
        CHECK_I64(sl_f32_to_f16(nextafterf(middle, next)), i + 1);
    }
    CHECK_I64(sl_f32_to_f16(65519.996F), 0x7bff);
    CHECK_I64(sl_f32_to_f16(65520), 0x7c00);
    CHECK_I64(sl_f32_to_f16(-3e38F), 0xfc00);
    CHECK_I64(sl_f32_to_f16(-1e-30F), 0x8000);
}

TEST(scales_of_every_form)
{
    static const char *const names[] = {"blocks.weight", "rows.weight", "flat_rows.weight", "whole.weight",
                                        "one.weight"};
    sl_tensors *tensors = open_golden();
    for (int64_t n = 0; n < SL_COUNT(names); n++) {
        const sl_tensor *x = find(tensors, names[n], "");
        check_pieces(tensors, names[n]);
        float want[9 * 19], got[9 * 19];
        CHECK_OK(sl_tensors_read(tensors, find(tensors, names[n], ".f32"), 0, x->count, SL_F32, want));
        for (int64_t first = 0; first < 19; first += 5) {
            int64_t count = SL_MIN(19 - first, (int64_t) 5);
            CHECK_OK(sl_tensors_read_transposed(tensors, x, first, count, SL_F32, got));
            for (int64_t i = 0; i < count * 9; i++)
                CHECK(same(got[i], want[i % 9 * 19 + first + i / 9]));
        }
    }
    sl_tensors_close(tensors);
}

/* ---- files made here ---- */

enum { ROWS = 3000, COLUMNS = 200 };

static void write_scaled(const char *folder, const char *end, sl_file_dtype dtype, int32_t rank, const int64_t *dim,
                         const char *config)
{
    char path[400];
    sl_tensors_writer *writer;
    static unsigned char data[ROWS * COLUMNS];
    static float scales[ROWS];
    for (int64_t i = 0; i < ROWS * COLUMNS; i++)
        data[i] = (unsigned char) (i * 7 % 120);
    for (int64_t i = 0; i < ROWS; i++)
        scales[i] = ldexpf(1, (int) (i % 9));
    CHECK_OK(sl_dir_create(test_path(folder)));
    snprintf(path, sizeof path, "%s/config.json", test_path(folder));
    CHECK_OK(sl_file_write_atomic(path, config, strlen(config)));
    snprintf(path, sizeof path, "%s/model.safetensors", test_path(folder));
    CHECK_OK(sl_tensors_writer_open(path, &writer));
    CHECK_OK(sl_tensors_writer_declare(writer, "x.weight", SL_FILE_F8_E4M3, 2, (const int64_t[]){ROWS, COLUMNS}));
    size_t bytes = sl_file_dtype_bytes(dtype);
    for (int32_t i = 0; i < rank; i++)
        bytes *= (size_t) dim[i];
    snprintf(path, sizeof path, "x.weight%s", end);
    CHECK_OK(sl_tensors_writer_declare(writer, path, dtype, rank, dim));
    CHECK_OK(sl_tensors_writer_write(writer, data, sizeof data));
    CHECK_OK(sl_tensors_writer_write(writer, scales, bytes));
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
}

static void check_scaled(const char *folder, int64_t block_rows, int64_t block_columns)
{
    static float got[ROWS * COLUMNS];
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_open(test_path(folder), &tensors));
    const sl_tensor *x = sl_tensors_find(tensors, "x.weight");
    REQUIRE(x != NULL);
    CHECK_OK(sl_tensors_read(tensors, x, 0, x->count, SL_F32, got));
    int64_t across = SL_DIV_UP((int64_t) COLUMNS, block_columns), equal = 0;
    for (int64_t i = 0; i < ROWS * COLUMNS; i++) {
        int64_t block = i / COLUMNS / block_rows * across + i % COLUMNS / block_columns;
        equal += got[i] == ldexpf(sl_e4m3_to_f32((uint8_t) (i * 7 % 120)), (int) (block % 9));
    }
    CHECK_I64(equal, ROWS * COLUMNS);
    sl_tensors_close(tensors);
}

/* More of them than are kept at a time; without a word in config.json, and with one. */
TEST(many_scales)
{
    write_scaled("rows", "_scale", SL_FILE_F32, 2, (const int64_t[]){ROWS, 1}, "{}");
    check_scaled("rows", 1, COLUMNS);
    write_scaled("blocks", "_scale_inv", SL_FILE_F32, 2, (const int64_t[]){24, 2}, "{\"quantization_config\": {}}");
    check_scaled("blocks", 128, 128);
    write_scaled(
        "groups", "_scale", SL_FILE_F32, 2, (const int64_t[]){30, 4},
        "{\"quantization_config\": {\"config_groups\": {\"group_0\": {\"weights\": {\"block_structure\": [100, "
        "50]}}}}}");
    check_scaled("groups", 100, 50);
}

static void check_refused(const char *folder, sl_status want, const char *message)
{
    float value;
    sl_tensors *tensors = NULL;
    sl_status status = sl_tensors_open(test_path(folder), &tensors);
    if (status == SL_OK)
        status = sl_tensors_read(tensors, sl_tensors_find(tensors, "x.weight"), 0, 1, SL_F32, &value);
    CHECK_I64(status, want);
    CHECK_CONTAINS(sl_error_message(), message);
    sl_tensors_close(tensors);
}

TEST(scales_that_cannot_be_meant)
{
    write_scaled("few", "_scale", SL_FILE_F32, 1, (const int64_t[]){7}, "{}");
    check_refused("few", SL_E_FORMAT, "holds 7 scales");
    write_scaled("none", "_scale", SL_FILE_F32, 1, (const int64_t[]){0}, "{}");
    check_refused("none", SL_E_FORMAT, "holds 0 scales");
    write_scaled("numbers", "_scale", SL_FILE_I32, 0, NULL, "{}");
    check_refused("numbers", SL_E_UNSUPPORTED, "scales of type I32");
    write_scaled("absent", "_other", SL_FILE_F32, 0, NULL, "{\"quantization_config\": {}}");
    check_refused("absent", SL_E_FORMAT, "\"x.weight_scale_inv\"");
    write_scaled("size", "_scale", SL_FILE_F32, 0, NULL, "{\"quantization_config\": {\"weight_block_size\": [0, 1]}}");
    check_refused("size", SL_E_FORMAT, "weight_block_size");
    float value;
    sl_tensors *tensors;
    write_scaled("cast", "_other", SL_FILE_F32, 0, NULL, "{}"); /* values as they are */
    CHECK_OK(sl_tensors_open(test_path("cast"), &tensors));
    CHECK_OK(sl_tensors_read(tensors, sl_tensors_find(tensors, "x.weight"), 8, 1, SL_F32, &value));
    CHECK(value == sl_e4m3_to_f32(56));
    sl_tensors_close(tensors);
}

TEST(quantization_that_can_be_read)
{
    static const char *const good[] = {
        "{\"quant_method\": \"fp8\"}",
        "{\"quant_method\": \"fp8\", \"fmt\": \"e4m3\", \"weight_block_size\": [128, 128], \"activation_scheme\": "
        "\"dynamic\"}",
        "{\"quant_method\": \"fbgemm_fp8\", \"activation_scale_ub\": 1200.0}",
        "{\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\", \"sparsity_config\": {\"format\": "
        "\"dense\"}, \"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 8, \"type\": \"float\", "
        "\"symmetric\": true}}}}"};
    static const char model[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 64, \"rms_norm_eps\": 1e-5, "
        "\"quantization_config\": %s}";
    for (int64_t i = 0; i < SL_COUNT(good); i++) {
        char text[1024];
        sl_text written;
        sl_model read;
        snprintf(text, sizeof text, model, good[i]);
        CHECK_OK(sl_model_parse_config("config.json", text, strlen(text), &read));
        CHECK_OK(sl_model_config_text(&read, &written));
        CHECK(!strstr(written.data, "quant")); /* what is written has ordinary weights */
        sl_text_free(&written);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_value_as_pytorch_reads_it);
    RUN(every_value_by_its_definition);
    RUN(rounding_to_halves);
    RUN(scales_of_every_form);
    RUN(many_scales);
    RUN(scales_that_cannot_be_meant);
    RUN(quantization_that_can_be_read);
    return test_end();
}
