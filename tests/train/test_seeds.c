/* What the seed fixes, one at a time: initial weights, data order, dropout masks, rounding noise. Another seed changes each of
 * them, in its upper 32 bits too; the same seed none; and masks and noise are others in every step. */
#include "core/bf16.h"
#include "model/safetensors.h"
#include "run_job.h"

static const char *const seeds[] = {"1", "2", "4294967297" /* 2^32 + 1 */};

static char weights[600], constant_text[512];

/* Text of one letter: every sequence is like every other, so that the order does not show. */
static void make_files(void)
{
    static char letters[8000];
    outcome run;
    char options[700], folder[512];
    memset(letters, 'e', sizeof letters);
    snprintf(constant_text, sizeof constant_text, "%s", test_path("constant.txt"));
    CHECK_OK(sl_file_write_atomic(constant_text, letters, sizeof letters));
    snprintf(folder, sizeof folder, "%s", test_path("weights"));
    snprintf(options, sizeof options, "steps 2 out '%s'", folder);
    run_job(options, 100, &run);
    snprintf(weights, sizeof weights, "%s/checkpoints/step-00000002", folder);
}

static void run_seed(const char *seed, const char *more, int64_t steps, outcome *out)
{
    char options[2000];
    snprintf(options, sizeof options, "seed %s %s", seed, more);
    run_job(options, steps, out);
}

typedef bool (*is_other)(const outcome *a, const outcome *b);

static bool other_hash(const outcome *a, const outcome *b)
{
    return strcmp(a->hash, b->hash) != 0;
}

static bool other_loss(const outcome *a, const outcome *b)
{
    return a->loss[0] != b->loss[0];
}

/* Every pair of seeds differs after `steps` steps, and each seed is like itself. */
static void check_seeds(const char *more, int64_t steps, is_other differs)
{
    outcome of[SL_COUNT(seeds)], again;
    for (int64_t i = 0; i < SL_COUNT(seeds); i++) {
        run_seed(seeds[i], more, steps, &of[i]);
        run_seed(seeds[i], more, steps, &again);
        CHECK(same_run(&of[i], &again));
        for (int64_t j = 0; j < i; j++)
            CHECK_MSG(differs(&of[i], &of[j]), "%s: seeds %s and %s do not differ", more, seeds[i], seeds[j]);
    }
}

TEST(initial_weights)
{
    check_seeds("", 0, other_hash);
}

TEST(data_order)
{
    char more[700];
    snprintf(more, sizeof more, "init-from '%s'", weights);
    check_seeds(more, 1, other_loss);
}

/* Without learning, one step's loss differs from the next one's by its masks alone. */
TEST(dropout_masks)
{
    static const char config[] =
        "{\"model_type\": \"gpt2\", \"n_layer\": 1, \"n_embd\": 48, \"n_head\": 3, \"vocab_size\": 256, "
        "\"n_positions\": 32, \"resid_pdrop\": 0.2, \"embd_pdrop\": 0.2, \"attn_pdrop\": 0}";
    char more[2000], model[512], out[512];
    outcome run;
    snprintf(model, sizeof model, "%s", test_path("dropout.json"));
    CHECK_OK(sl_file_write_atomic(model, config, sizeof config - 1));
    snprintf(out, sizeof out, "%s", test_path("dropout"));
    snprintf(more, sizeof more, "model '%s' data '%s' steps 1 out '%s'", model, constant_text, out);
    run_job(more, 100, &run);
    snprintf(more, sizeof more, "model '%s' data '%s' init-from '%s/checkpoints/step-00000001' lr 0 warmup 0", model,
             constant_text, out);
    check_seeds(more, 1, other_loss);
    run_job(more, 100, &run);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            CHECK_MSG(run.loss[i] != run.loss[j], "steps %d and %d have the same masks", i + 1, j + 1);
}

/* ---- rounding noise: bf16 weights whose updates are far below their last bit, so that few move and the noise says which ---- */

static const char noisy[] =
    "precision bf16 optimizer sgd momentum 0 weight-decay 0 schedule constant warmup 0 lr 2e-5 steps 4";

static sl_bf16 *read_weights(const char *out, int step, int64_t *count)
{
    char path[700];
    sl_tensors *tensors;
    sl_bf16 *values = NULL;
    *count = 0;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d", out, step);
    CHECK_OK(sl_tensors_open(path, &tensors));
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        const sl_tensor *tensor = sl_tensors_at(tensors, i);
        values = realloc(values, (size_t) (*count + tensor->count) * sizeof *values);
        REQUIRE(values != NULL);
        CHECK_OK(sl_tensors_read(tensors, tensor, 0, tensor->count, SL_BF16, values + *count));
        *count += tensor->count;
    }
    sl_tensors_close(tensors);
    return values;
}

static int64_t moved(const char *out, int from, int to)
{
    int64_t count, other, n = 0;
    sl_bf16 *a = read_weights(out, from, &count), *b = read_weights(out, to, &other);
    REQUIRE(count == other);
    for (int64_t i = 0; i < count; i++)
        n += memcmp(&a[i], &b[i], sizeof a[i]) != 0;
    free(a);
    free(b);
    return n;
}

/* The gradient hardly changes from step to step. If the noise did not either, the weights that move in the third step would be those
 * that moved in the second, and none besides. */
TEST(rounding_noise)
{
    char more[2000], out[512];
    outcome run;
    snprintf(more, sizeof more, "%s data '%s' init-from '%s'", noisy, constant_text, weights);
    check_seeds(more, 1, other_hash);
    snprintf(out, sizeof out, "%s", test_path("noise"));
    snprintf(more, sizeof more, "%s data '%s' init-from '%s' out '%s' checkpoint-every 1 keep 9", noisy, constant_text,
             weights, out);
    run_job(more, 100, &run);
    int64_t once = moved(out, 1, 2), twice = moved(out, 1, 3);
    printf("     %" PRId64 " weights move in a step, %" PRId64 " in two\n", once, twice);
    CHECK(once > 100);
    CHECK_MSG((double) twice > 1.5 * (double) once, "%" PRId64 " weights move in a step, %" PRId64 " in two", once,
              twice);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    make_files();
    RUN(initial_weights);
    RUN(data_order);
    RUN(dropout_masks);
    RUN(rounding_noise);
    return test_end();
}
