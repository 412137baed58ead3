/* Initial weights: a function of seed, name and index alone, with the distribution asked for; hashes that see every bit. */
#include "core/bf16.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/normal.h"
#include "memory_store.h"
#include "train/weights.h"

static void read_param(memory_store *m, int32_t param, sl_part part, void *out)
{
    sl_store_part at = {&m->store, param, part};
    size_t bytes =
        (size_t) sl_type_count(&m->program->params[param].type) * sl_dtype_bytes(sl_store_dtype(&m->store, part));
    CHECK_OK(sl_store_read_part(&at, 0, out, bytes));
}

TEST(distribution)
{
    memory_store m;
    memory_open(&m, "byte-tiny", SL_PRECISION_F32, SL_OPTIMIZER_ADAMW);
    CHECK_OK(sl_store_init_random(&m.store, 5, NULL));
    int64_t random = 0, ones = 0;
    for (int32_t p = 0; p < m.program->n_params; p++) {
        const sl_param *param = &m.program->params[p];
        int64_t n = sl_type_count(&param->type);
        float *values;
        CHECK_OK(sl_alloc(&values, n, sizeof *values));
        read_param(&m, p, SL_PART_WEIGHT, values);
        double sum = 0, squares = 0, largest = 0;
        for (int64_t i = 0; i < n; i++) {
            sum += (double) values[i];
            squares += (double) values[i] * (double) values[i];
            largest = fmax(largest, fabs((double) values[i]));
        }
        if (param->init == SL_INIT_ONES) {
            CHECK_NEAR(sum, n, 0);
            ones++;
        } else if (param->init == SL_INIT_NORMAL || param->init == SL_INIT_TRUNCATED) {
            double std = (double) param->init_std, shrink = param->init == SL_INIT_TRUNCATED ? 0.98658 : 1;
            CHECK_NEAR(sum / (double) n / std, 0, 5 / sqrt((double) n));
            CHECK_NEAR(sqrt(squares / (double) n) / std, shrink, 4 / sqrt((double) n));
            if (param->init == SL_INIT_TRUNCATED)
                CHECK(largest <= 3 * std * 1.000001);
            random++;
        }
        sl_free(values);
    }
    CHECK(random > 10 && ones > 4);
    memory_close(&m);
}

/* ---- against the rules as they are written down, not as the graph carries them ---- */

static float *values_of(memory_store *m, const char *name, int64_t *count)
{
    float *values = NULL;
    for (int32_t p = 0; p < m->program->n_params; p++)
        if (strcmp(m->program->params[p].name, name) == 0) {
            *count = sl_type_count(&m->program->params[p].type);
            CHECK_OK(sl_alloc(&values, *count, sizeof *values));
            read_param(m, p, SL_PART_WEIGHT, values);
        }
    REQUIRE(values != NULL);
    return values;
}

/* What a normal distribution cut at three sigma has left of its standard deviation. */
static double cut_std(void)
{
    double density = exp(-4.5) / sqrt(2 * acos(-1.0)), inside = erf(3 / sqrt(2.0));
    return sqrt(1 - 6 * density / inside);
}

static void check_normal(memory_store *m, const char *name, double std, bool cut)
{
    int64_t n, within = 0, beyond = 0;
    float *values = values_of(m, name, &n);
    double squares = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = fabs((double) values[i]) / std;
        squares += x * x;
        within += x <= 1;
        beyond += x > 3.000001;
    }
    double share = erf(sqrt(0.5)) / (cut ? erf(3 / sqrt(2.0)) : 1), tail = 1 - erf(3 / sqrt(2.0));
    CHECK_MSG(n >= 4096, "%s has only %lld elements", name, (long long) n);
    CHECK_NEAR(sqrt(squares / (double) n), cut ? cut_std() : 1, 5 / sqrt(2.0 * (double) n));
    CHECK_NEAR((double) within / (double) n, share, 5 * sqrt(share * (1 - share) / (double) n));
    CHECK_NEAR((double) beyond / (double) n, cut ? 0 : tail, cut ? 0 : 5 * sqrt(tail / (double) n));
    sl_free(values);
}

static void check_constant(memory_store *m, const char *name, float want)
{
    int64_t n, wrong = 0;
    float *values = values_of(m, name, &n);
    for (int64_t i = 0; i < n; i++)
        wrong += values[i] != want;
    CHECK_I64(wrong, 0);
    sl_free(values);
}

static void open_config(memory_store *m, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path("config.json"), text, strlen(text)));
    memory_open(m, test_path("config.json"), SL_PRECISION_F32, SL_OPTIMIZER_ADAMW);
    CHECK_OK(sl_store_init_random(&m->store, 21, NULL));
}

#define LLAMA                                                                                                 \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"intermediate_size\": 192, \"num_hidden_layers\": 2, " \
    "\"num_attention_heads\": 8, \"num_key_value_heads\": 4, \"head_dim\": 16, \"vocab_size\": 600, "

/* normal(0, initializer_range) for every matrix. */
TEST(normal_rule)
{
    static const char *const matrices[] = {"embedding",        "head",          "layers.0.qkv", "layers.1.qkv",
                                           "layers.1.gate_up", "layers.1.down", "layers.0.o"};
    memory_store m;
    open_config(&m, LLAMA "\"initializer_range\": 0.03}");
    for (int64_t i = 0; i < SL_COUNT(matrices); i++)
        check_normal(&m, matrices[i], 0.03, false);
    check_constant(&m, "layers.1.mlp_norm", 1);
    memory_close(&m);
}

/* Glorot: variance 2 / (in + out), cut at three sigma; q (128 rows) stands for all of qkv, the embedding has 1. */
TEST(glorot_rule)
{
    memory_store m;
    int64_t n, redrawn = 0, kept = 0, sum_beyond = 0;
    open_config(&m, LLAMA "\"initializer_rule\": \"glorot\"}");
    check_normal(&m, "embedding", 1, true);
    check_normal(&m, "head", sqrt(2.0 / (64 + 600)), true);
    check_normal(&m, "layers.0.qkv", sqrt(2.0 / (64 + 128)), true);
    check_normal(&m, "layers.0.o", sqrt(2.0 / (128 + 64)), true);
    check_normal(&m, "layers.1.gate_up", sqrt(2.0 / (64 + 192)), true);
    check_normal(&m, "layers.1.down", sqrt(2.0 / (192 + 64)), true);
    check_constant(&m, "layers.0.attention_norm", 1);

    /* Only what lies beyond is drawn again, and then anywhere inside. */
    float *values = values_of(&m, "embedding", &n), *plain;
    CHECK_OK(sl_alloc(&plain, n, sizeof *plain));
    sl_normal_fill(21, 0, sl_hash64("embedding", 9, 0), n / 4, plain);
    double redrawn_abs = 0;
    for (int64_t i = 0; i < n; i++) {
        bool beyond = fabsf(plain[i]) > 3;
        kept += !beyond && values[i] == plain[i];
        redrawn += beyond && fabsf(values[i]) <= 3;
        redrawn_abs += beyond ? fabs((double) values[i]) : 0;
        sum_beyond += beyond;
    }
    CHECK(sum_beyond > 50 && redrawn == sum_beyond && kept + redrawn == n);
    CHECK_NEAR(redrawn_abs / (double) redrawn, 0.79, 0.3);
    sl_free(values);
    sl_free(plain);
    memory_close(&m);
}

/* GPT-2: projections back into the residual stream are smaller by sqrt(2 layers). */
TEST(gpt2_rule)
{
    memory_store m;
    open_config(&m, "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 3, \"n_head\": 4, \"vocab_size\": 600, "
                    "\"n_positions\": 128, \"attn_pdrop\": 0, \"initializer_range\": 0.05}");
    check_normal(&m, "embedding", 0.05, false);
    check_normal(&m, "positions", 0.05, false);
    check_normal(&m, "layers.0.qkv", 0.05, false);
    check_normal(&m, "layers.2.up", 0.05, false);
    check_normal(&m, "layers.2.o", 0.05 / sqrt(6.0), false);
    check_normal(&m, "layers.1.down", 0.05 / sqrt(6.0), false);
    check_constant(&m, "layers.0.qkv.bias", 0);
    check_constant(&m, "norm.weight", 1);
    check_constant(&m, "norm.bias", 0);
    memory_close(&m);
}

TEST(threads_do_not_matter)
{
    memory_store a, b;
    sl_pool *pool;
    uint64_t hash_a, hash_b, other;
    memory_open(&a, "byte-nano", SL_PRECISION_BF16_MASTER, SL_OPTIMIZER_ADAMW);
    memory_open(&b, "byte-nano", SL_PRECISION_BF16_MASTER, SL_OPTIMIZER_ADAMW);
    CHECK_OK(sl_pool_create(3, &pool));
    CHECK_OK(sl_store_init_random(&a.store, 1, NULL));
    CHECK_OK(sl_store_init_random(&b.store, 1, pool));
    CHECK(memory_equal(&a, &b));
    CHECK_OK(sl_store_hash(&a.store, &hash_a));
    CHECK_OK(sl_store_hash(&b.store, &hash_b));
    CHECK_U64(hash_a, hash_b);
    CHECK_OK(sl_store_init_random(&b.store, 2, pool));
    CHECK_OK(sl_store_hash(&b.store, &other));
    CHECK(other != hash_a);
    sl_pool_destroy(pool);
    memory_close(&a);
    memory_close(&b);
}

/* The f32 master is the value drawn, the bf16 weight its rounding; moments begin at zero. */
/* The message of a write that fails is the caller's, whichever thread it was. */
static sl_status failing_write(void *context, int32_t object, size_t offset, const void *bytes, size_t length)
{
    memory_store *m = context;
    if (bytes && length > 1024 && offset > m->program->objects[object].bytes / 2)
        return sl_fail(SL_E_DEVICE, "object %d cannot be written", object);
    return memory_write(context, object, offset, bytes, length);
}

TEST(a_write_fails)
{
    memory_store m;
    sl_pool *pool;
    CHECK_OK(sl_pool_create(3, &pool));
    memory_open(&m, "byte-test", SL_PRECISION_BF16_MASTER, SL_OPTIMIZER_ADAMW);
    m.store.access.write = failing_write;
    CHECK_FAILS(sl_store_init_random(&m.store, 1, pool), SL_E_DEVICE);
    CHECK_CONTAINS(sl_error_message(), "cannot be written");
    sl_setup setup = {.seed = 1, .threads = 3};
    sl_weights weights;
    CHECK_FAILS(sl_weights_begin(&setup, &m.store, &weights), SL_E_DEVICE);
    CHECK_CONTAINS(sl_error_message(), "cannot be written");
    memory_close(&m);
    sl_pool_destroy(pool);
}

TEST(parts_agree)
{
    memory_store m, f;
    memory_open(&m, "byte-test", SL_PRECISION_BF16_MASTER, SL_OPTIMIZER_ADAMW);
    memory_open(&f, "byte-test", SL_PRECISION_F32, SL_OPTIMIZER_SGD);
    CHECK(sl_store_has(&m.store, SL_PART_MASTER, 0) && sl_store_has(&m.store, SL_PART_STATE + 1, 0));
    CHECK(!sl_store_has(&f.store, SL_PART_MASTER, 0) && !sl_store_has(&f.store, SL_PART_STATE + 1, 0));
    CHECK(sl_store_has(&f.store, SL_PART_STATE, 0));
    CHECK_OK(sl_store_init_random(&m.store, 3, NULL));
    CHECK_OK(sl_store_init_random(&f.store, 3, NULL));
    for (int32_t p = 0; p < m.program->n_params; p++) {
        int64_t n = sl_type_count(&m.program->params[p].type), wrong = 0;
        float *master, *plain, *moment;
        sl_bf16 *weight;
        CHECK_OK(sl_alloc(&master, n, 4));
        CHECK_OK(sl_alloc(&plain, n, 4));
        CHECK_OK(sl_alloc(&moment, n, 4));
        CHECK_OK(sl_alloc(&weight, n, 2));
        read_param(&m, p, SL_PART_MASTER, master);
        read_param(&m, p, SL_PART_WEIGHT, weight);
        read_param(&m, p, SL_PART_STATE + 1, moment);
        read_param(&f, p, SL_PART_WEIGHT, plain);
        for (int64_t i = 0; i < n; i++)
            wrong += master[i] != plain[i] || weight[i] != sl_f32_to_bf16(plain[i]) || moment[i] != 0;
        CHECK_I64(wrong, 0);
        sl_free(master);
        sl_free(plain);
        sl_free(moment);
        sl_free(weight);
    }
    memory_close(&m);
    memory_close(&f);
}

TEST(hash_sees_one_bit)
{
    memory_store m;
    uint64_t before, after;
    memory_open(&m, "byte-test", SL_PRECISION_F32, SL_OPTIMIZER_ADAMW);
    CHECK_OK(sl_store_init_random(&m.store, 3, NULL));
    CHECK_OK(sl_store_hash(&m.store, &before));
    for (int32_t p = 0; p < m.program->n_params; p++) {
        sl_store_part at = {&m.store, p, SL_PART_WEIGHT};
        size_t last = sl_type_bytes(&m.program->params[p].type) - 1;
        unsigned char byte;
        CHECK_OK(sl_store_read_part(&at, last, &byte, 1));
        byte ^= 1;
        CHECK_OK(sl_store_write_part(&at, last, &byte, 1));
        CHECK_OK(sl_store_hash(&m.store, &after));
        CHECK(after != before);
        byte ^= 1;
        CHECK_OK(sl_store_write_part(&at, last, &byte, 1));
    }
    CHECK_OK(sl_store_hash(&m.store, &after));
    CHECK_U64(after, before);
    memory_close(&m);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(distribution);
    RUN(normal_rule);
    RUN(glorot_rule);
    RUN(gpt2_rule);
    RUN(threads_do_not_matter);
    RUN(a_write_fails);
    RUN(parts_agree);
    RUN(hash_sees_one_bit);
    return test_end();
}
