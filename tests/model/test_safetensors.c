/* Safetensors: files come back, convert and transpose exactly; hostile headers are refused; every failing allocation, read and
 * write is an ordinary error that leaves nothing behind. */
#include "core/fault.h"
#include "core/file.h"
#include "core/hash.h"
#include "model/interpret.h"

/* ---- raw files ---- */

static const char *write_raw(const char *header, size_t data_bytes)
{
    static unsigned char bytes[1 << 16];
    uint64_t length = strlen(header);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + length + i] = (unsigned char) i;
    const char *path = test_path("raw.safetensors");
    CHECK_OK(sl_file_write_atomic(path, bytes, 8 + length + data_bytes));
    return path;
}

static void check_refused(const char *header, size_t data_bytes, sl_status status, const char *message)
{
    sl_tensors *tensors;
    CHECK_FAILS(sl_tensors_open(write_raw(header, data_bytes), &tensors), status);
    CHECK_CONTAINS(sl_error_message(), message);
    CHECK_CONTAINS(sl_error_message(), "raw.safetensors");
}

#define T(name, dtype, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" begin "," end "]}"

TEST(good_headers)
{
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_open(write_raw("{" T("b", "F32", "2,1", "4", "12") "," T("a", "BF16", "2", "0", "4") "," T(
                                           "none", "F32", "0,7", "4", "4") "," T("scalar", "U8", "", "12", "13") "}  ",
                                       13),
                             &tensors));
    CHECK_I64(sl_tensors_count(tensors), 4);
    CHECK_STR(sl_tensors_at(tensors, 0)->name, "a");
    const sl_tensor *b = sl_tensors_find(tensors, "b");
    REQUIRE(b != NULL);
    CHECK(b->rank == 2 && b->dim[0] == 2 && b->dim[1] == 1 && b->count == 2 && b->dtype == SL_FILE_F32);
    CHECK(sl_tensors_find(tensors, "c") == NULL && sl_tensors_metadata(tensors, "x") == NULL);
    unsigned char raw[4];
    CHECK_OK(sl_tensors_read_raw(tensors, b, 4, raw, 4));
    CHECK(raw[0] == 8 && raw[3] == 11);
    float value;
    CHECK_FAILS(sl_tensors_read(tensors, sl_tensors_find(tensors, "scalar"), 0, 1, SL_F32, &value), SL_E_UNSUPPORTED);
    sl_tensors_close(tensors);
    CHECK_OK(sl_tensors_open(write_raw("{\"__metadata__\":{\"format\":\"pt\"}}", 0), &tensors));
    CHECK_I64(sl_tensors_count(tensors), 0);
    CHECK_STR(sl_tensors_metadata(tensors, "format"), "pt");
    sl_tensors_close(tensors);
    sl_tensors_close(NULL);
}

TEST(bad_headers)
{
    check_refused("{" T("a", "F32", "2", "0", "8") "}", 4, SL_E_FORMAT, "outside");
    check_refused("{" T("a", "F32", "2", "0", "8") "}", 12, SL_E_FORMAT, "4 bytes");
    check_refused("{" T("a", "F32", "2", "4", "12") "}", 12, SL_E_FORMAT, "gap");
    check_refused("{" T("a", "F32", "2", "0", "8") "," T("b", "F32", "2", "4", "12") "}", 12, SL_E_FORMAT, "overlaps");
    check_refused("{" T("a", "F32", "3", "0", "8") "}", 8, SL_E_FORMAT, "shape");
    check_refused("{" T("a", "F32", "-2", "0", "8") "}", 8, SL_E_FORMAT, "shape");
    check_refused("{" T("a", "F32", "2.5", "0", "8") "}", 8, SL_E_FORMAT, "shape");
    check_refused("{" T("a", "F32", "4611686018427387904,4", "0", "8") "}", 8, SL_E_FORMAT, "too large");
    check_refused("{" T("a", "F32", "1,1,1,1,1,1,1,1,2", "0", "8") "}", 8, SL_E_FORMAT, "shape");
    check_refused("{" T("a", "F32", "2", "8", "0") "}", 8, SL_E_FORMAT, "outside");
    check_refused("{" T("a", "F32", "2", "-8", "0") "}", 8, SL_E_FORMAT, "outside");
    check_refused("{" T("a", "F12", "2", "0", "8") "}", 8, SL_E_UNSUPPORTED, "F12");
    check_refused("{" T("a", "F32", "2", "0", "8") "," T("a", "F32", "2", "0", "8") "}", 8, SL_E_FORMAT, "a");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, SL_E_FORMAT, "data_offsets");
    check_refused("{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, SL_E_FORMAT, "dtype");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, SL_E_FORMAT, "data_offsets");
    check_refused("{\"a\":7}", 0, SL_E_FORMAT, "dtype");
    check_refused("{\"__metadata__\":7}", 0, SL_E_FORMAT, "__metadata__");
    check_refused("{\"__metadata__\":{\"a\":7}}", 0, SL_E_FORMAT, "__metadata__");
    check_refused("[]", 0, SL_E_FORMAT, "begin with");
    check_refused("{\"a\"", 0, SL_E_FORMAT, "raw.safetensors");
}

TEST(bad_files)
{
    sl_tensors *tensors;
    const char *path = test_path("raw.safetensors");
    uint64_t lengths[] = {0, 1, 3, 1000, UINT64_MAX, (uint64_t) 1 << 40};
    CHECK_OK(sl_file_write_atomic(path, "1234567", 7));
    CHECK_FAILS(sl_tensors_open(path, &tensors), SL_E_FORMAT);
    for (int64_t i = 0; i < SL_COUNT(lengths); i++) {
        CHECK_OK(sl_file_write_atomic(path, &lengths[i], 8));
        CHECK_FAILS(sl_tensors_open(path, &tensors), SL_E_FORMAT);
    }
    CHECK_FAILS(sl_tensors_open(test_path("nothing"), &tensors), SL_E_IO);
    CHECK_OK(sl_dir_create(test_path("folder")));
    CHECK_FAILS(sl_tensors_open(test_path("folder"), &tensors), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "model.safetensors");
}

/* ---- conversion ---- */

static sl_status write_tensor(const char *path, sl_file_dtype dtype, int64_t rows, int64_t columns, const void *data)
{
    sl_tensors_writer *writer;
    sl_status status;
    SL_TRY(sl_tensors_writer_open(path, &writer));
    SL_TRY_GOTO(sl_tensors_writer_metadata(writer, "format", "pt \"quoted\""), destroy);
    SL_TRY_GOTO(sl_tensors_writer_declare(writer, "x", dtype, 2, (const int64_t[]){rows, columns}), destroy);
    size_t bytes = (size_t) (rows * columns) * sl_file_dtype_bytes(dtype), half = bytes / 3;
    SL_TRY_GOTO(sl_tensors_writer_write(writer, data, half), destroy);
    SL_TRY_GOTO(sl_tensors_writer_write(writer, (const char *) data + half, bytes - half), destroy);
    status = sl_tensors_writer_commit(writer, NULL);
destroy:
    sl_tensors_writer_destroy(writer);
    return status;
}

/* Every half there is, against arithmetic that knows nothing of bits. */
TEST(halves)
{
    static uint16_t halves[65536];
    static float out[65536];
    sl_tensors *tensors;
    for (int i = 0; i < 65536; i++)
        halves[i] = (uint16_t) i;
    CHECK_OK(write_tensor(test_path("half"), SL_FILE_F16, 256, 256, halves));
    CHECK_OK(sl_tensors_open(test_path("half"), &tensors));
    CHECK_STR(sl_tensors_metadata(tensors, "format"), "pt \"quoted\"");
    CHECK_OK(sl_tensors_read(tensors, sl_tensors_at(tensors, 0), 0, 65536, SL_F32, out));
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, mantissa = i & 1023;
        double size = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        if (exponent == 31)
            CHECK(mantissa ? isnan(out[i]) : isinf(out[i]));
        else
            CHECK((double) out[i] == (i & 0x8000 ? -size : size));
    }
    sl_tensors_close(tensors);
}

TEST(conversion_and_transposition)
{
    enum { ROWS = 37, COLUMNS = 301 };
    static float f32[ROWS * COLUMNS], back[ROWS * COLUMNS];
    static sl_bf16 bf16[ROWS * COLUMNS];
    sl_tensors *tensors;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        f32[i] = sl_bf16_to_f32(bf16[i] = sl_f32_to_bf16(interpret_noise(5, i)));
    for (int wide = 0; wide < 2; wide++) {
        const char *path = test_path(wide ? "f32" : "bf16");
        CHECK_OK(
            write_tensor(path, wide ? SL_FILE_F32 : SL_FILE_BF16, ROWS, COLUMNS, wide ? (const void *) f32 : bf16));
        CHECK_OK(sl_tensors_open(path, &tensors));
        const sl_tensor *x = sl_tensors_at(tensors, 0);
        CHECK_OK(sl_tensors_read(tensors, x, 0, x->count, SL_F32, back));
        CHECK(memcmp(back, f32, sizeof f32) == 0);
        CHECK_OK(sl_tensors_read(tensors, x, 11, 100, SL_BF16, back));
        CHECK(memcmp(back, bf16 + 11, 200) == 0);
        for (int64_t count = 1; count <= COLUMNS; count = count * 3 + 1)
            for (int64_t first = 0; first + count <= COLUMNS; first += count) {
                CHECK_OK(sl_tensors_read_transposed(tensors, x, first, count, SL_F32, back));
                bool same = true;
                for (int64_t j = 0; j < count; j++)
                    for (int64_t c = 0; c < ROWS; c++)
                        same &= back[j * ROWS + c] == f32[c * COLUMNS + first + j];
                CHECK(same);
            }
        sl_tensors_close(tensors);
    }
}

TEST(writer_counts_bytes)
{
    sl_tensors_writer *writer;
    CHECK_OK(sl_tensors_writer_open(test_path("short"), &writer));
    CHECK_OK(sl_tensors_writer_declare(writer, "x", SL_FILE_F32, 1, (const int64_t[]){2}));
    CHECK_FAILS(sl_tensors_writer_write(writer, "123456789", 9), SL_E_INTERNAL);
    CHECK_OK(sl_tensors_writer_write(writer, "1234", 4));
    CHECK_FAILS(sl_tensors_writer_commit(writer, NULL), SL_E_INTERNAL);
    sl_tensors_writer_destroy(writer);
    CHECK(!sl_file_exists(test_path("short")));
    sl_tensors_writer_destroy(NULL);
}

/* Whole tensors go to as many files as the limit asks for; what is larger has one of its own. Bytes may come in any pieces. */
TEST(several_files)
{
    enum { TENSORS = 7 };
    static const int64_t counts[TENSORS] = {10, 20, 0, 100, 5, 35, 40};
    static const int32_t want[TENSORS] = {0, 0, 0, 1, 2, 2, 3};
    static unsigned char data[210];
    char path[300];
    sl_tensors_writer *writer;
    sl_tensors *tensors;
    const sl_written_file *files;
    for (int i = 0; i < 210; i++)
        data[i] = (unsigned char) (i * 5 + 1);
    CHECK_OK(sl_dir_create(test_path("several")));
    snprintf(path, sizeof path, "%s/model.safetensors", test_path("several"));
    for (int piece = 1; piece <= 210; piece += 19) {
        char name[16];
        CHECK_OK(sl_tensors_writer_open(path, &writer));
        sl_tensors_writer_split(writer, 40);
        CHECK_OK(sl_tensors_writer_metadata(writer, "format", "pt"));
        for (int i = 0; i < TENSORS; i++) {
            snprintf(name, sizeof name, "t%d", TENSORS - i); /* not in order of name */
            CHECK_OK(sl_tensors_writer_declare(writer, name, SL_FILE_U8, 1, &counts[i]));
        }
        for (int at = 0; at < 210; at += piece)
            CHECK_OK(sl_tensors_writer_write(writer, data + at, (size_t) SL_MIN(piece, 210 - at)));
        CHECK_OK(sl_tensors_writer_commit(writer, NULL));
        REQUIRE(sl_tensors_writer_files(writer, &files) == 5);
        CHECK_STR(files[0].name, "model.safetensors.index.json");
        CHECK_STR(files[4].name, "model-00004-of-00004.safetensors");
        CHECK_OK(sl_tensors_open(test_path("several"), &tensors));
        CHECK_I64(sl_tensors_count(tensors), TENSORS);
        for (int i = 0, at = 0; i < TENSORS; at += (int) counts[i++]) {
            unsigned char back[100];
            snprintf(name, sizeof name, "t%d", TENSORS - i);
            const sl_tensor *t = sl_tensors_find(tensors, name);
            REQUIRE(t != NULL && t->bytes == counts[i]);
            CHECK_CONTAINS(sl_tensors_file(tensors, t), files[1 + want[i]].name);
            CHECK_OK(sl_tensors_read_raw(tensors, t, 0, back, (size_t) t->bytes));
            CHECK(memcmp(back, data + at, (size_t) t->bytes) == 0);
        }
        sl_tensors_close(tensors);
        for (int i = 0; i < 5; i++) {
            int64_t bytes;
            uint64_t hash;
            char *text;
            size_t length;
            snprintf(name, sizeof name, "several");
            char file[400];
            snprintf(file, sizeof file, "%s/%s", test_path(name), files[i].name);
            CHECK_OK(sl_file_size(file, &bytes));
            CHECK_I64(bytes, files[i].bytes);
            CHECK_OK(sl_file_read_all(file, 1 << 16, &text, &length));
            hash = sl_hash64(text, length, 0);
            CHECK_U64(hash, files[i].checksum);
            sl_free(text);
        }
        sl_tensors_writer_destroy(writer);
    }
    /* One that is not finished leaves none of its files. */
    CHECK_OK(sl_dir_remove(test_path("several")));
    CHECK_OK(sl_dir_create(test_path("several")));
    CHECK_OK(sl_tensors_writer_open(path, &writer));
    sl_tensors_writer_split(writer, 40);
    CHECK_OK(sl_tensors_writer_declare(writer, "a", SL_FILE_U8, 1, &counts[3]));
    CHECK_OK(sl_tensors_writer_declare(writer, "b", SL_FILE_U8, 1, &counts[3]));
    CHECK_OK(sl_tensors_writer_write(writer, data, 150));
    CHECK_FAILS(sl_tensors_writer_commit(writer, NULL), SL_E_INTERNAL);
    sl_tensors_writer_destroy(writer);
    sl_region *region;
    const char **names;
    int64_t left;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_dir_list(region, test_path("several"), &names, &left));
    CHECK_I64(left, 0);
    sl_region_destroy(region);
}

/* ---- parameters ---- */

static sl_graph *graph_of(const char *name, sl_dtype dtype)
{
    sl_model model;
    sl_graph *graph;
    sl_graph_config config = {.tokens = 4, .max_segments = 1, .dtype = dtype};
    char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", SL_SOURCE_DIR, name);
    CHECK_OK(sl_model_find(path, &model));
    CHECK_OK(sl_graph_create(&config, &graph));
    CHECK_OK(sl_model_build(&model, graph));
    return graph;
}

static sl_status save_params(const sl_graph *graph, unsigned char **memory, const char *path, const char *prefix,
                             void *buffer, size_t bytes, uint64_t *checksum)
{
    sl_tensors_writer *writer;
    sl_status status;
    SL_TRY(sl_tensors_writer_open(path, &writer));
    for (int32_t p = 0; p < graph->n_params; p++)
        SL_TRY_GOTO(sl_param_declare(writer, prefix, &graph->params[p], graph->dtype), destroy);
    for (int32_t p = 0; p < graph->n_params; p++)
        SL_TRY_GOTO(sl_param_save(writer, &graph->params[p], graph->dtype, buffer, bytes, interpret_read, memory[p]),
                    destroy);
    status = sl_tensors_writer_commit(writer, checksum);
destroy:
    sl_tensors_writer_destroy(writer);
    return status;
}

static sl_status load_params(const sl_graph *graph, unsigned char **memory, const char *path, const char *prefix,
                             void *buffer, size_t bytes)
{
    sl_tensors *tensors;
    sl_status status = SL_OK;
    SL_TRY(sl_tensors_open(path, &tensors));
    for (int32_t p = 0; p < graph->n_params && status == SL_OK; p++)
        status = sl_param_load_prefixed(tensors, prefix, &graph->params[p], graph->dtype, buffer, bytes,
                                        interpret_write, memory[p]);
    sl_tensors_close(tensors);
    return status;
}

static unsigned char **param_memory(const sl_graph *graph)
{
    unsigned char **memory = calloc((size_t) graph->n_params, sizeof *memory);
    for (int32_t p = 0; p < graph->n_params; p++)
        memory[p] = calloc(1, sl_type_bytes(&graph->params[p].type));
    return memory;
}

static void free_memory(const sl_graph *graph, unsigned char **memory)
{
    for (int32_t p = 0; p < graph->n_params; p++)
        free(memory[p]);
    free(memory);
}

/* Saved and loaded through buffers of several sizes, prefixed or not: always the same file, always the same bits. */
TEST(parameters_come_back)
{
    static unsigned char buffer[SL_PARAM_BUFFER_BYTES];
    const char *const models[] = {"llama", "llama-tied", "gpt2"};
    const size_t sizes[] = {400, 1000, 20000, sizeof buffer};
    for (int64_t m = 0; m < SL_COUNT(models); m++)
        for (int dtype = SL_F32; dtype <= SL_BF16; dtype++) {
            sl_graph *graph = graph_of(models[m], (sl_dtype) dtype);
            unsigned char **memory = param_memory(graph), **back = param_memory(graph);
            uint64_t first = 0, checksum = 0;
            for (int32_t p = 0; p < graph->n_params; p++)
                for (int64_t i = 0; i < sl_type_count(&graph->params[p].type); i++)
                    interpret_put(memory[p], graph->dtype, i, interpret_noise((uint64_t) p, i));
            for (int64_t s = 0; s < SL_COUNT(sizes); s++) {
                const char *path = test_path("params.safetensors"), *prefix = s % 2 ? "moment1." : "";
                CHECK_OK(save_params(graph, memory, path, "", buffer, sizes[s], &checksum));
                first = s ? first : checksum;
                CHECK_U64(checksum, first);
                CHECK_OK(save_params(graph, memory, path, prefix, buffer, sizes[s], NULL));
                CHECK_OK(load_params(graph, back, path, prefix, buffer, sizes[s]));
                for (int32_t p = 0; p < graph->n_params; p++)
                    CHECK(memcmp(memory[p], back[p], sl_type_bytes(&graph->params[p].type)) == 0);
            }
            free_memory(graph, memory);
            free_memory(graph, back);
            sl_graph_destroy(graph);
        }
}

/* A part of more rows than the strip beside it holds: every column is gathered in pieces. */
TEST(tall_parts_are_transposed)
{
    enum { ROWS = 1500, COLUMNS = 3, BYTES = ROWS * COLUMNS * 4 };
    static float memory[ROWS * COLUMNS], file[ROWS * COLUMNS];
    static unsigned char buffer[BYTES + 16384];
    static const size_t sizes[] = {ROWS * 4 + 8, BYTES + 4096, BYTES + 4096 + 100, sizeof buffer};
    sl_param param = {.name = "w", .type = sl_type_2d(SL_F32, ROWS, COLUMNS), .n_parts = 1};
    param.parts[0] = (sl_param_part){"w", 0, ROWS, true, 0};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        memory[i] = (float) i;
    for (int64_t s = 0; s < SL_COUNT(sizes); s++) {
        sl_tensors_writer *writer;
        sl_tensors *tensors;
        CHECK_OK(sl_tensors_writer_open(test_path("tall"), &writer));
        CHECK_OK(sl_param_declare(writer, "", &param, SL_F32));
        CHECK_OK(sl_param_save(writer, &param, SL_F32, buffer, sizes[s], interpret_read, (unsigned char *) memory));
        CHECK_OK(sl_tensors_writer_commit(writer, NULL));
        sl_tensors_writer_destroy(writer);
        CHECK_OK(sl_tensors_open(test_path("tall"), &tensors));
        const sl_tensor *tensor = sl_tensors_find(tensors, "w");
        CHECK(tensor && tensor->dim[0] == COLUMNS && tensor->dim[1] == ROWS);
        CHECK_OK(sl_tensors_read(tensors, tensor, 0, ROWS * COLUMNS, SL_F32, file));
        int64_t wrong = 0;
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < COLUMNS; c++)
                wrong += file[c * ROWS + r] != memory[r * COLUMNS + c];
        CHECK_I64(wrong, 0);
        sl_tensors_close(tensors);
    }
}

/* Names with and without "transformer."; a tensor too many; another model's file. */
TEST(names)
{
    sl_graph *gpt2 = graph_of("gpt2", SL_F32), *llama = graph_of("llama", SL_F32);
    sl_tensors_writer *writer;
    sl_tensors *tensors;
    static const char zeros[1 << 16];
    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(sl_tensors_writer_open(test_path("names"), &writer));
        for (int32_t p = 0; p < gpt2->n_params; p++) {
            sl_param param = gpt2->params[p];
            param.parts[0].name += turn == 0 ? 0 : strlen("transformer.");
            CHECK_OK(sl_param_declare(writer, "", &param, SL_F32));
        }
        if (turn)
            CHECK_OK(sl_tensors_writer_declare(writer, turn == 1 ? "h.0.attn.bias" : "h.7.attn.c_attn.weight",
                                               SL_FILE_U8, 1, (const int64_t[]){3}));
        for (int32_t p = 0; p < gpt2->n_params; p++)
            CHECK_OK(sl_tensors_writer_write(writer, zeros, sl_type_bytes(&gpt2->params[p].type)));
        CHECK_OK(sl_tensors_writer_write(writer, zeros, turn ? 3 : 0));
        CHECK_OK(sl_tensors_writer_commit(writer, NULL));
        sl_tensors_writer_destroy(writer);
        CHECK_OK(sl_tensors_open(test_path("names"), &tensors));
        for (int32_t p = 0; p < gpt2->n_params; p++)
            CHECK_OK(sl_param_check(tensors, &gpt2->params[p]));
        if (turn < 2) {
            const char *last = gpt2->params[gpt2->n_params - 1].parts[0].name;
            CHECK_OK(sl_params_check_unused(tensors, gpt2->params, gpt2->n_params));
            CHECK_FAILS(sl_params_check_unused(tensors, gpt2->params, gpt2->n_params - 1), SL_E_FORMAT);
            CHECK_CONTAINS(sl_error_message(), last + (turn ? strlen("transformer.") : 0));
        } else
            CHECK_FAILS(sl_params_check_unused(tensors, gpt2->params, gpt2->n_params), SL_E_FORMAT);
        CHECK_FAILS(sl_param_check(tensors, &llama->params[0]), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), "model.embed_tokens.weight");
        sl_tensors_close(tensors);
    }
    sl_graph_destroy(gpt2);
    sl_graph_destroy(llama);
}

/* ---- many files ---- */

static sl_status write_one(const char *file, const char *name, float value)
{
    sl_tensors_writer *writer;
    SL_TRY(sl_tensors_writer_open(file, &writer));
    CHECK_OK(sl_tensors_writer_declare(writer, name, SL_FILE_F32, 1, (const int64_t[]){1}));
    CHECK_OK(sl_tensors_writer_write(writer, &value, 4));
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    return SL_OK;
}

static sl_status open_index(const char *map, sl_tensors **tensors)
{
    char text[1024];
    snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":8},\"weight_map\":%s}", map);
    CHECK_OK(sl_file_write_atomic(test_path("many/model.safetensors.index.json"), text, strlen(text)));
    return sl_tensors_open(test_path("many"), tensors);
}

TEST(index_files)
{
    sl_tensors *tensors;
    float value;
    CHECK_OK(sl_dir_create(test_path("many")));
    CHECK_OK(write_one(test_path("many/a.safetensors"), "a", 1));
    CHECK_OK(write_one(test_path("many/b.safetensors"), "b", 2));
    CHECK_OK(open_index("{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}", &tensors));
    CHECK_I64(sl_tensors_count(tensors), 2);
    CHECK_OK(sl_tensors_read(tensors, sl_tensors_find(tensors, "b"), 0, 1, SL_F32, &value));
    CHECK(value == 2);
    CHECK_CONTAINS(sl_tensors_file(tensors, sl_tensors_find(tensors, "b")), "many/b.safetensors");
    sl_tensors_close(tensors);
    CHECK_OK(open_index("{}", &tensors));
    CHECK_I64(sl_tensors_count(tensors), 0);
    CHECK(sl_tensors_find(tensors, "a") == NULL);
    sl_tensors_close(tensors);
    CHECK_FAILS(open_index("{\"a\":\"b.safetensors\"}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"c\":\"b.safetensors\"}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"a\":\"../many/a.safetensors\"}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"a\":\"/etc/passwd\"}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"a\":\"\"}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"a\":7}", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("7", &tensors), SL_E_FORMAT);
    CHECK_FAILS(open_index("{\"a\":\"missing.safetensors\"}", &tensors), SL_E_IO);
    CHECK_OK(write_one(test_path("many/b.safetensors"), "a", 2));
    CHECK_FAILS(open_index("{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}", &tensors), SL_E_FORMAT);
}

TEST(more_files_than_at_first)
{
    enum { FILES = 30 };
    sl_tensors *tensors;
    char map[900] = "{", name[32], file[64];
    size_t before = sl_heap_bytes();
    CHECK_OK(sl_dir_create(test_path("many")));
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "t%d", i);
        snprintf(file, sizeof file, "many/%d.st", i);
        snprintf(map + strlen(map), sizeof map - strlen(map), "%s\"%s\":\"%d.st\"", i ? "," : "", name, i);
        CHECK_OK(write_one(test_path(file), name, (float) i));
    }
    strcat(map, "}");
    CHECK_OK(open_index(map, &tensors));
    CHECK_I64(sl_tensors_count(tensors), FILES);
    for (int i = 0; i < FILES; i++) {
        float value = -1;
        snprintf(name, sizeof name, "t%d", i);
        snprintf(file, sizeof file, "many/%d.st", i);
        const sl_tensor *tensor = sl_tensors_find(tensors, name);
        REQUIRE(tensor != NULL);
        CHECK_OK(sl_tensors_read(tensors, tensor, 0, 1, SL_F32, &value));
        CHECK(value == (float) i);
        CHECK_STR(sl_tensors_file(tensors, tensor), test_path(file));
    }
    sl_tensors_close(tensors);
    CHECK_U64(sl_heap_bytes(), before);
}

/* ---- faults ---- */

static sl_status round_trip(const sl_graph *graph, unsigned char **memory, unsigned char **back)
{
    static unsigned char buffer[4096];
    const char *path = test_path("fault.safetensors");
    SL_TRY(save_params(graph, memory, path, "", buffer, sizeof buffer, NULL));
    return load_params(graph, back, path, "", buffer, sizeof buffer);
}

/* The k-th of each kind of event fails, for every k there is. */
TEST(faults)
{
    const sl_fault_kind kinds[] = {SL_FAULT_ALLOC, SL_FAULT_OPEN, SL_FAULT_READ,
                                   SL_FAULT_WRITE, SL_FAULT_SYNC, SL_FAULT_RENAME};
    sl_graph *graph = graph_of("gpt2", SL_BF16);
    unsigned char **memory = param_memory(graph), **back = param_memory(graph);
    for (int64_t k = 0; k < SL_COUNT(kinds); k++) {
        sl_fault_arm(kinds[k], 1 << 30);
        CHECK_OK(round_trip(graph, memory, back));
        int64_t events = sl_fault_events(kinds[k]);
        size_t heap = sl_heap_bytes();
        CHECK(events > 0);
        for (int64_t nth = 1; nth <= events; nth++) {
            sl_fault_arm(kinds[k], nth);
            sl_status status = round_trip(graph, memory, back);
            CHECK_MSG(status != SL_OK && sl_error_message()[0], "event %lld of kind %d did not fail", (long long) nth,
                      kinds[k]);
            CHECK_MSG(sl_heap_bytes() == heap, "%lld bytes leak", (long long) (sl_heap_bytes() - heap));
            CHECK(!sl_file_exists(test_path("fault.safetensors.tmp")));
        }
        sl_fault_arm(kinds[k], 0);
    }
    free_memory(graph, memory);
    free_memory(graph, back);
    sl_graph_destroy(graph);
}

/* A file without tensors is whole as well. */
TEST(nothing_is_written)
{
    sl_tensors_writer *writer;
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_writer_open(test_path("nothing.safetensors"), &writer));
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    CHECK_OK(sl_tensors_open(test_path("nothing.safetensors"), &tensors));
    CHECK(!sl_tensors_find(tensors, "x"));
    sl_tensors_close(tensors);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(good_headers);
    RUN(bad_headers);
    RUN(bad_files);
    RUN(halves);
    RUN(conversion_and_transposition);
    RUN(writer_counts_bytes);
    RUN(several_files);
    RUN(parameters_come_back);
    RUN(tall_parts_are_transposed);
    RUN(names);
    RUN(index_files);
    RUN(more_files_than_at_first);
    RUN(faults);
    RUN(nothing_is_written);
    return test_end();
}
