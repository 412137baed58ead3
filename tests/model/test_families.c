/* Tiny models of transformers, one for each way in which families of Llama's kind differ: loss, log-probabilities, gradients, and what is
 * written back. The files come from tests/golden/make_families.py. */
#include "core/file.h"
#include "model/golden_models.h"
#include "model/internal.h"
#include "model/interpret.h"

enum { SEQLEN = 16, TOKENS = 2 * SEQLEN };

static char buffer[SL_PARAM_BUFFER_BYTES];

static const char *golden(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/families/%s", SL_SOURCE_DIR, name);
    return path;
}

static sl_tensors *open_golden(const char *name)
{
    char path[600];
    sl_tensors *tensors = NULL;
    snprintf(path, sizeof path, "%s/golden.safetensors", golden(name));
    CHECK_OK(sl_tensors_open(path, &tensors));
    return tensors;
}

static void read_tensor(sl_tensors *tensors, const char *name, sl_dtype dtype, void *out, int64_t count)
{
    const sl_tensor *tensor = sl_tensors_find(tensors, name);
    REQUIRE(tensor != NULL && tensor->count == count);
    CHECK_OK(sl_tensors_read(tensors, tensor, 0, count, dtype, out));
}

static void load_weights(interpreter *it, sl_tensors *tensors)
{
    for (int32_t p = 0; p < it->program->n_params; p++) {
        const sl_param *param = &it->program->params[p];
        CHECK_OK(sl_param_load(tensors, param, param->type.dtype, buffer, sizeof buffer, interpret_write,
                               interpret_param(it, p)));
    }
}

static interpreter open_model(sl_model *model, int64_t chunk_tokens)
{
    sl_program_config config = interpret_config(SEQLEN, 2, chunk_tokens, SL_PRECISION_F32);
    return interpret_create(model, &config);
}

/* ||got - want|| / ||want|| */
static double distance(const float *got, const float *want, int64_t count)
{
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < count; i++) {
        difference += ((double) got[i] - (double) want[i]) * ((double) got[i] - (double) want[i]);
        norm += (double) want[i] * (double) want[i];
    }
    return sqrt(difference / norm);
}

/* Bars: loss within 1e-5, log-probabilities within 1e-4, gradients within 1e-4 relative. What is measured here is tighter. */
static void check_gradients(interpreter *it, sl_tensors *tensors, const char *name)
{
    static float want[1 << 13];
    for (int32_t p = 0; p < it->program->n_params; p++) {
        const sl_param *param = &it->program->params[p];
        const int64_t count = sl_type_count(&param->type);
        REQUIRE(count <= SL_COUNT(want));
        CHECK_OK(sl_param_load_prefixed(tensors, "grad.", param, SL_F32, buffer, sizeof buffer, interpret_write, want));
        double off = distance((const float *) (const void *) interpret_gradient(it, p), want, count);
        CHECK_MSG(off <= 1e-5, "%s: the gradient of %s is off by %.3g relative", name, param->name, off);
    }
}

/* The loss of one target at a time. */
static void check_tokens(interpreter *it, sl_tensors *tensors, const char *name)
{
    int32_t tokens[TOKENS], targets[TOKENS], one[TOKENS];
    float log_p[TOKENS];
    double worst = 0;
    read_tensor(tensors, "tokens", SL_I32, tokens, TOKENS);
    read_tensor(tensors, "targets", SL_I32, targets, TOKENS);
    read_tensor(tensors, "log_p", SL_F32, log_p, TOKENS);
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < TOKENS; i++)
            one[i] = i == t ? targets[i] : SL_TARGET_IGNORED;
        interpret_set_data(it, tokens, one);
        interpret_step(it, false);
        worst = SL_MAX(worst, fabs(interpret_loss(it) * TOKENS + (double) log_p[t]));
    }
    CHECK_MSG(worst <= 1e-5, "%s: a log-probability is off by %.3g", name, worst);
}

static double loss_of(interpreter *it, sl_tensors *tensors)
{
    int32_t tokens[TOKENS], targets[TOKENS];
    read_tensor(tensors, "tokens", SL_I32, tokens, TOKENS);
    read_tensor(tensors, "targets", SL_I32, targets, TOKENS);
    interpret_set_data(it, tokens, targets);
    interpret_step(it, false);
    return interpret_loss(it);
}

static void check_model(const char *name, int64_t chunk_tokens)
{
    sl_model model;
    float want;
    sl_tensors *tensors = open_golden(name);
    CHECK_OK(sl_model_find(golden(name), &model));
    interpreter it = open_model(&model, chunk_tokens);
    load_weights(&it, tensors);
    read_tensor(tensors, "loss", SL_F32, &want, 1);
    double loss = loss_of(&it, tensors);
    CHECK_MSG(fabs(loss - (double) want) <= 2e-6, "%s: the loss is %.8f, not %.8f", name, loss, (double) want);
    check_gradients(&it, tensors, name);
    if (chunk_tokens == TOKENS)
        check_tokens(&it, tensors, name);
    interpret_destroy(&it);
    sl_tensors_close(tensors);
}

/* Transformers 5 takes no integer for a real number and the other way around: written keys have the types of the file's. */
static void check_types(const char *name, const sl_text *written)
{
    char path[600], *text;
    size_t length;
    sl_region *region;
    const sl_json *before, *after;
    snprintf(path, sizeof path, "%s/config.json", golden(name));
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_json_parse(region, path, text, length, &before));
    CHECK_OK(sl_json_parse(region, "written", written->data, written->length, &after));
    for (const sl_json *member = before->child; member; member = member->next) {
        const sl_json *now = sl_json_get(after, member->key);
        if (now && now->kind == SL_JSON_NUMBER && strcmp(member->key, "rope_theta") != 0)
            CHECK_MSG(now->is_integer == member->is_integer, "%s: \"%s\" is another kind of number", name, member->key);
    }
    sl_region_destroy(region);
    sl_free(text);
}

/* Every tensor of the file has its place, and the written config gives the same model: the loss has the same bits. */
static void check_round_trip(const char *name)
{
    sl_model model, back;
    sl_tensors *tensors = open_golden(name);
    sl_text text, again;
    CHECK_OK(sl_model_find(golden(name), &model));
    CHECK_OK(sl_model_config_text(&model, &text));
    CHECK_OK(sl_model_parse_config("written", text.data, text.length, &back));
    CHECK_OK(sl_model_config_text(&back, &again));
    CHECK_STR(text.data, again.data);
    check_types(name, &text);
    CHECK(memcmp(&model.rope, &back.rope, sizeof back.rope) == 0 && model.window == back.window);
    CHECK(memcmp(model.layer_flags, back.layer_flags, sizeof back.layer_flags) == 0);
    interpreter a = open_model(&model, TOKENS), b = open_model(&back, TOKENS);
    load_weights(&a, tensors);
    load_weights(&b, tensors);
    CHECK(loss_of(&a, tensors) == loss_of(&b, tensors));
    int64_t parts = 0, weights = 0;
    for (int32_t p = 0; p < a.program->n_params; p++)
        parts += a.program->params[p].n_parts;
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++)
        weights += sl_tensors_at(tensors, i)->dtype == SL_FILE_BF16;
    CHECK_I64(parts, weights);
    sl_text_free(&text);
    sl_text_free(&again);
    interpret_destroy(&a);
    interpret_destroy(&b);
    sl_tensors_close(tensors);
}

TEST(families)
{
    for (int64_t i = 0; i < SL_COUNT(golden_families); i++) {
        check_model(golden_families[i], TOKENS); /* both sequences in a chunk */
        check_model(golden_families[i], 5); /* slices, the last one shorter: they rotate as the whole sequence does */
    }
}

/* With the pairs of a head beside each other, biases lie in that order, too. */
TEST(interleaved_biases)
{
    sl_model model;
    float want;
    sl_tensors *tensors = open_golden("llama-biases");
    CHECK_OK(sl_model_find(golden("llama-biases"), &model));
    model.rope_style = SL_ROPE_INTERLEAVED;
    interpreter it = open_model(&model, TOKENS);
    load_weights(&it, tensors);
    read_tensor(tensors, "loss", SL_F32, &want, 1);
    CHECK_NEAR(loss_of(&it, tensors), want, 2e-6);
    interpret_destroy(&it);
    sl_tensors_close(tensors);
}

/* Forward, backward and recomputed, in chunks of both lengths: every rotation gets the factors, and nothing else does. */
TEST(constants_of_every_task)
{
    sl_model model;
    CHECK_OK(sl_model_find(golden("llama-long"), &model));
    interpreter it = open_model(&model, 5);
    int64_t rotations = 0;
    for (int32_t t = 0; t < it.program->n_tasks; t++) {
        const sl_task *task = &it.program->tasks[t];
        const bool rotates = task->op == SL_OP_ROPE || task->op == SL_OP_ROPE_BWD;
        CHECK((task->constants != NULL) == rotates);
        for (int i = 0; i < 3 && rotates; i++)
            CHECK(task->constants[i] == model.rope.short_factors[i] &&
                  task->constants[3 + i] == model.rope.long_factors[i]);
        rotations += rotates;
    }
    CHECK_I64(rotations, 2 * model.layers * it.program->n_chunks);
    interpret_destroy(&it);
}

TEST(what_is_written)
{
    for (int64_t i = 0; i < SL_COUNT(golden_families); i++)
        check_round_trip(golden_families[i]);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(families);
    RUN(interleaved_biases);
    RUN(constants_of_every_task);
    RUN(what_is_written);
    sl_isa best;
    CHECK_OK(sl_isa_detect(&best));
    for (interpret_isa = SL_ISA_AVX2; interpret_isa <= (int) best; interpret_isa++) {
        printf("kernels up to %s\n", sl_isa_name((sl_isa) interpret_isa));
        RUN(families);
    }
    return test_end();
}
