/* What a folder of weights means to a model: the order of rotated rows, shapes that must agree in every dimension, numbers that must
 * be finite, and the config's epsilon in the computation. */
#include "core/file.h"
#include "model/interpret.h"

static char buffer[SL_PARAM_BUFFER_BYTES];

static const char *golden(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/tests/golden/%s", SL_SOURCE_DIR, name);
    return path;
}

static sl_status load_all(interpreter *it, const char *path)
{
    sl_tensors *tensors;
    sl_status status = SL_OK;
    SL_TRY(sl_tensors_open(path, &tensors));
    for (int32_t p = 0; p < it->program->n_params && status == SL_OK; p++) {
        const sl_param *param = &it->program->params[p];
        status = sl_param_load(tensors, param, param->type.dtype, buffer, sizeof buffer, interpret_write,
                               interpret_param(it, p));
    }
    sl_tensors_close(tensors);
    return status;
}

/* With a further tensor of one number, unless `extra` is NULL. */
static void save_prefixed(const interpreter *it, const char *prefix, const char *extra, const char *path)
{
    sl_tensors_writer *writer;
    CHECK_OK(sl_tensors_writer_open(path, &writer));
    for (int32_t p = 0; p < it->program->n_params; p++)
        CHECK_OK(sl_param_declare(writer, prefix, &it->program->params[p], it->program->params[p].type.dtype));
    if (extra)
        CHECK_OK(sl_tensors_writer_declare(writer, extra, SL_FILE_F32, 1, (const int64_t[]){1}));
    for (int32_t p = 0; p < it->program->n_params; p++)
        CHECK_OK(sl_param_save(writer, &it->program->params[p], it->program->params[p].type.dtype, buffer,
                               sizeof buffer, interpret_read, interpret_param(it, p)));
    if (extra)
        CHECK_OK(sl_tensors_writer_write(writer, &(float){1}, sizeof(float)));
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
}

static void save_all(const interpreter *it, const char *path)
{
    save_prefixed(it, "", NULL, path);
}

static interpreter open_model(sl_model *model)
{
    sl_program_config config = interpret_config(16, 2, 32, SL_PRECISION_F32);
    return interpret_create(model, &config);
}

static double loss_of(interpreter *it)
{
    int32_t tokens[32], targets[32];
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_open(golden("llama-tied/golden.safetensors"), &tensors));
    CHECK_OK(sl_tensors_read(tensors, sl_tensors_find(tensors, "tokens"), 0, 32, SL_I32, tokens));
    CHECK_OK(sl_tensors_read(tensors, sl_tensors_find(tensors, "targets"), 0, 32, SL_I32, targets));
    sl_tensors_close(tensors);
    interpret_set_data(it, tokens, targets);
    interpret_step(it, false);
    return interpret_loss(it);
}

static void write_text(const char *name, const char *text)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), text, strlen(text)));
}

/* Without Sluice's own key, the written config is any Llama's. */
static void write_large(const char *name, size_t length)
{
    char *text;
    CHECK_OK(sl_alloc(&text, (int64_t) length, 1));
    memset(text, ' ', length);
    CHECK_OK(sl_file_write_atomic(test_path(name), text, length));
    sl_free(text);
}

static void write_plain_config(const sl_model *model, const char *name)
{
    char *text, *line;
    size_t length;
    CHECK_OK(sl_model_write_config(model, test_path(name)));
    CHECK_OK(sl_file_read_all(test_path(name), 1 << 20, &text, &length));
    line = strstr(text, "\"sluice_rope_order\"");
    REQUIRE(line != NULL);
    char *end = strchr(line, '\n');
    REQUIRE(end != NULL);
    memmove(line, end + 1, strlen(end + 1) + 1);
    CHECK_CONTAINS(text, "LlamaForCausalLM");
    CHECK(!strstr(text, "interleaved"));
    write_text(name, text);
    sl_free(text);
}

/* PyTorch's interleaved model, from its file in pairs to one in Hugging Face's order, which a model that rotates halves computes
 * to the same loss. */
TEST(interleaved_rotation_is_written_in_halves)
{
    sl_model pairs, halves, again;
    CHECK_OK(sl_model_find(golden("llama-tied"), &pairs));
    CHECK(pairs.rope_style == SL_ROPE_INTERLEAVED);
    interpreter a = open_model(&pairs);
    CHECK_OK(load_all(&a, golden("llama-tied/golden.safetensors")));
    double want = loss_of(&a);
    save_all(&a, test_path("model.safetensors"));

    write_plain_config(&pairs, "config.json");
    CHECK_OK(sl_model_find(test_dir(), &halves));
    CHECK(halves.rope_style == SL_ROPE_HALF);
    interpreter b = open_model(&halves);
    CHECK_OK(load_all(&b, test_dir()));
    CHECK_NEAR(loss_of(&b), want, 1e-6 * want);

    /* The written config as it is: the same bits as before. */
    CHECK_OK(sl_model_write_config(&pairs, test_path("config.json")));
    CHECK_OK(sl_model_find(test_dir(), &again));
    CHECK(again.rope_style == SL_ROPE_INTERLEAVED);
    interpreter c = open_model(&again);
    CHECK_OK(load_all(&c, test_dir()));
    for (int32_t p = 0; p < a.program->n_params; p++)
        CHECK(memcmp(interpret_param(&a, p), interpret_param(&c, p), sl_type_bytes(&a.program->params[p].type)) == 0);
    CHECK(loss_of(&c) == want);

    /* Rows in the wrong order make another function: the check above detects it. */
    write_text("config.json", "{\"rope_interleaved\": true}");
    CHECK_OK(load_all(&c, test_path("model.safetensors")));
    CHECK(fabs(loss_of(&c) - want) > 1e-3);
    /* A config.json that is none of ours, and none at all, does not matter here. */
    write_large("config.json", (1 << 20) + 1);
    CHECK_OK(load_all(&c, test_path("model.safetensors")));
    CHECK(loss_of(&c) == want);
    interpret_destroy(&a);
    interpret_destroy(&b);
    interpret_destroy(&c);
}

/* What a checkpoint holds of a published model is that model's file again: the same tensors, bits, config and loss. */
static void check_round_trip(const char *name)
{
    sl_model model, back;
    sl_tensors *before, *after;
    char file[128];
    CHECK_OK(sl_model_find(golden(name), &model));
    interpreter a = open_model(&model);
    snprintf(file, sizeof file, "%s/golden.safetensors", name);
    CHECK_OK(load_all(&a, golden(file)));
    save_all(&a, test_path("model.safetensors"));
    CHECK_OK(sl_model_write_config(&model, test_path("config.json")));
    CHECK_OK(sl_model_find(test_dir(), &back));
    CHECK(back.family == model.family && back.head_dim == model.head_dim && back.tied == model.tied);
    interpreter b = open_model(&back);
    CHECK_OK(load_all(&b, test_dir()));
    CHECK(loss_of(&a) == loss_of(&b));
    CHECK_OK(sl_tensors_open(golden(file), &before));
    CHECK_OK(sl_tensors_open(test_path("model.safetensors"), &after));
    for (int64_t i = 0; i < sl_tensors_count(after); i++) {
        static float x[1 << 12], y[1 << 12];
        const sl_tensor *saved = sl_tensors_at(after, i), *given = sl_tensors_find(before, saved->name);
        REQUIRE(given != NULL && given->count == saved->count && saved->count <= SL_COUNT(x));
        CHECK_OK(sl_tensors_read(before, given, 0, given->count, SL_F32, x));
        CHECK_OK(sl_tensors_read(after, saved, 0, saved->count, SL_F32, y));
        CHECK(memcmp(x, y, (size_t) saved->count * sizeof *x) == 0);
    }
    CHECK(sl_tensors_find(after, "model.layers.1.self_attn.k_norm.weight") != NULL);
    CHECK((sl_tensors_find(after, "lm_head.weight") == NULL) == model.tied);
    sl_tensors_close(before);
    sl_tensors_close(after);
    interpret_destroy(&a);
    interpret_destroy(&b);
}

TEST(qwen3_comes_back)
{
    check_round_trip("qwen3");
    check_round_trip("qwen3-tied");
}

/* Row by row, against the definition: even rows of a head, then odd ones. */
TEST(order_of_rows)
{
    sl_model model;
    sl_tensors *tensors;
    float row[64];
    CHECK_OK(sl_dir_create(test_path("rows")));
    CHECK_OK(sl_model_find(golden("llama-tied"), &model));
    int64_t d = model.dim, head = model.head_dim, checked = 0;
    REQUIRE(d <= SL_COUNT(row) && head >= 6);
    interpreter it = open_model(&model);
    interpret_init(&it, 1, 0.1f);
    save_all(&it, test_path("rows/model.safetensors"));
    CHECK_OK(sl_tensors_open(test_path("rows"), &tensors));
    for (int32_t p = 0; p < it.program->n_params; p++)
        for (int i = 0; i < it.program->params[p].n_parts; i++) {
            const sl_param_part *part = &it.program->params[p].parts[i];
            bool turned = strstr(part->name, "q_proj") || strstr(part->name, "k_proj");
            const float *ours = (const float *) (void *) interpret_param(&it, p);
            const sl_tensor *tensor = sl_tensors_find(tensors, part->name);
            for (int64_t r = 0; r < part->rows && tensor->rank == 2 && tensor->dim[1] == d; r++) {
                int64_t half = r % head / (head / 2), from = turned ? r / head * head + 2 * (r % (head / 2)) + half : r;
                CHECK_OK(sl_tensors_read(tensors, tensor, r * d, d, SL_F32, row));
                CHECK(memcmp(row, ours + (part->row + from) * d, (size_t) d * sizeof *row) == 0);
                checked += turned;
            }
        }
    CHECK_I64(checked, model.layers * (model.heads + model.kv_heads) * head);
    sl_tensors_close(tensors);
    interpret_destroy(&it);
}

/* A file with one tensor of another shape, or with one element replaced. */
static void write_variant(const interpreter *it, const char *name, int64_t rows, int64_t columns, int64_t element,
                          float value)
{
    static float values[1 << 14];
    sl_tensors_writer *writer;
    sl_tensors *tensors;
    save_all(it, test_path("good.safetensors"));
    CHECK_OK(sl_tensors_open(test_path("good.safetensors"), &tensors));
    CHECK_OK(sl_tensors_writer_open(test_path("variant.safetensors"), &writer));
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
            const sl_tensor *t = sl_tensors_at(tensors, i);
            bool other = strcmp(t->name, name) == 0;
            int64_t dim[2] = {other && rows ? rows : t->dim[0], other && columns ? columns : t->dim[1]};
            int64_t count = t->rank == 2 ? dim[0] * dim[1] : dim[0];
            REQUIRE(count <= SL_COUNT(values));
            if (pass == 0) {
                CHECK_OK(sl_tensors_writer_declare(writer, t->name, SL_FILE_F32, t->rank, dim));
                continue;
            }
            CHECK_OK(sl_tensors_read(tensors, t, 0, SL_MIN(t->count, count), SL_F32, values));
            if (other && element >= 0)
                values[element] = value;
            CHECK_OK(sl_tensors_writer_write(writer, values, (size_t) count * 4));
        }
    CHECK_OK(sl_tensors_writer_commit(writer, NULL));
    sl_tensors_writer_destroy(writer);
    sl_tensors_close(tensors);
}

static void check_shape(interpreter *it, const char *name, int64_t rows, int64_t columns, const char *part)
{
    sl_tensors *tensors;
    sl_status status = SL_OK;
    write_variant(it, name, rows, columns, -1, 0);
    CHECK_OK(sl_tensors_open(test_path("variant.safetensors"), &tensors));
    for (int32_t p = 0; p < it->program->n_params && status == SL_OK; p++)
        status = sl_param_check(tensors, &it->program->params[p]);
    CHECK_MSG(status == SL_E_FORMAT, "%s [%lld, %lld] gave %s", name, (long long) rows, (long long) columns,
              sl_status_name(status));
    CHECK_CONTAINS(sl_error_message(), name);
    CHECK_CONTAINS(sl_error_message(), part);
    CHECK_FAILS(load_all(it, test_path("variant.safetensors")), SL_E_FORMAT);
    sl_tensors_close(tensors);
}

/* The element count alone is not enough: each dimension by itself, and both with the same number of elements. */
TEST(every_dimension_must_agree)
{
    sl_model llama, gpt2;
    CHECK_OK(sl_model_find(golden("llama"), &llama));
    CHECK_OK(sl_model_find(golden("gpt2"), &gpt2));
    interpreter l = open_model(&llama), g = open_model(&gpt2);
    interpret_init(&l, 1, 0.1f);
    interpret_init(&g, 1, 0.1f);
    check_shape(&l, "model.layers.0.mlp.down_proj.weight", 32, 47, "[32, 47]");
    check_shape(&l, "model.layers.0.mlp.down_proj.weight", 32, 49, "[32, 49]");
    check_shape(&l, "model.layers.0.mlp.down_proj.weight", 31, 48, "[31, 48]");
    check_shape(&l, "model.layers.0.mlp.down_proj.weight", 48, 32, "[48, 32]");
    check_shape(&l, "model.layers.1.self_attn.k_proj.weight", 16, 33, "[16, 33]");
    check_shape(&l, "model.norm.weight", 31, 0, "[31");
    check_shape(&g, "transformer.h.0.attn.c_attn.weight", gpt2.dim, 3 * gpt2.dim + 1, "transformer.h.0.attn.c_attn");
    check_shape(&g, "transformer.h.0.attn.c_attn.weight", 3 * gpt2.dim, gpt2.dim, "transformer.h.0.attn.c_attn");
    interpret_destroy(&l);
    interpret_destroy(&g);
}

static void check_not_finite(interpreter *it, const char *name, int64_t element, float value, const char *what)
{
    char at[64];
    write_variant(it, name, 0, 0, element, value);
    CHECK_FAILS(load_all(it, test_path("variant.safetensors")), SL_E_NOT_FINITE);
    CHECK_CONTAINS(sl_error_message(), "variant.safetensors");
    CHECK_CONTAINS(sl_error_message(), name);
    CHECK_CONTAINS(sl_error_message(), what);
    snprintf(at, sizeof at, " at element %" PRId64, element);
    CHECK_CONTAINS(sl_error_message(), at);
}

/* The element is counted in the file, whatever happens to its tensor on the way: rows in pairs, transposed, one of a fused three. */
TEST(weights_must_be_finite)
{
    sl_model llama, gpt2;
    CHECK_OK(sl_model_find(golden("llama-tied"), &llama));
    CHECK_OK(sl_model_find(golden("gpt2"), &gpt2));
    interpreter l = open_model(&llama), g = open_model(&gpt2);
    interpret_init(&l, 1, 0.1f);
    interpret_init(&g, 1, 0.1f);
    check_not_finite(&l, "model.layers.1.self_attn.v_proj.weight", 0, NAN, " is NaN");
    check_not_finite(&l, "model.layers.1.self_attn.q_proj.weight", 5 * llama.dim + 3, INFINITY, " is infinity");
    check_not_finite(&l, "model.norm.weight", llama.dim - 1, -INFINITY, " is -infinity");
    check_not_finite(&g, "transformer.h.0.attn.c_attn.weight", 2 * 3 * gpt2.dim + 7, NAN, " is NaN");
    /* Finite in the file and not in the model. */
    write_variant(&l, "model.norm.weight", 0, 0, 4, 3.4e38f);
    CHECK_OK(load_all(&l, test_path("variant.safetensors")));
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_open(test_path("variant.safetensors"), &tensors));
    sl_status status = SL_OK;
    for (int32_t p = 0; p < l.program->n_params && status == SL_OK; p++)
        status = sl_param_load(tensors, &l.program->params[p], SL_BF16, buffer, sizeof buffer, interpret_write,
                               interpret_param(&l, p));
    CHECK(status == SL_E_NOT_FINITE);
    CHECK_CONTAINS(sl_error_message(), "is 3.4e+38 at element 4, too large for bf16");
    sl_tensors_close(tensors);
    interpret_destroy(&l);
    interpret_destroy(&g);
}

/* ---- multimodal models ---- */

static char heard[512];

static void hear(void *user, sl_log_level level, const char *text)
{
    (void) user;
    if (level == SL_LOG_WARN)
        snprintf(heard, sizeof heard, "%s", text);
}

static sl_status check_unused(const interpreter *it, const char *path)
{
    sl_tensors *tensors;
    CHECK_OK(sl_tensors_open(path, &tensors));
    heard[0] = 0;
    sl_log_set(hear, NULL, SL_LOG_WARN);
    sl_status status = sl_params_check_unused(tensors, it->program->params, it->program->n_params);
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    sl_tensors_close(tensors);
    return status;
}

/* Its language model is read, and the rest is left out with a warning; alone, the same names are another model's. */
TEST(language_model_of_a_multimodal_one)
{
    char path[512];
    sl_model model;
    snprintf(path, sizeof path, "%s", test_path("multimodal.safetensors"));
    CHECK_OK(sl_model_find(golden("gemma3"), &model));
    interpreter from = open_model(&model), to = open_model(&model);
    interpret_init(&from, 1, 0.1f);
    interpret_init(&to, 2, 0.1f);
    save_prefixed(&from, "language_model.", "vision_tower.probe", path);
    CHECK(loss_of(&from) != loss_of(&to));
    CHECK_OK(load_all(&to, path));
    CHECK(loss_of(&from) == loss_of(&to));
    CHECK_OK(check_unused(&to, path));
    CHECK_CONTAINS(heard, "1 tensors of the image encoder are left out");
    save_prefixed(&from, "language_model.", "audio_tower.probe", path);
    CHECK_FAILS(check_unused(&to, path), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "no place for tensor \"audio_tower.probe\"");
    save_prefixed(&from, "", "vision_tower.probe", path);
    CHECK_FAILS(check_unused(&to, path), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "no place for tensor \"vision_tower.probe\"");
    interpret_destroy(&from);
    interpret_destroy(&to);
}

/* ---- epsilon ---- */

/* The first norm of a step against its formula in double. */
static void check_norm(sl_model *model, sl_op_id op, double eps)
{
    interpreter it = open_model(model);
    interpret_init(&it, 3, 0.1f);
    loss_of(&it);
    const sl_task *task = NULL;
    for (int32_t i = 0; i < it.program->n_tasks && !task; i++)
        if (it.program->tasks[i].op == op)
            task = &it.program->tasks[i];
    REQUIRE(task != NULL);
    const float *x = (const float *) (void *) (it.memory[task->in[0].object] + task->in[0].offset);
    const float *w = (const float *) (void *) (it.memory[task->in[1].object] + task->in[1].offset);
    const float *y = (const float *) (void *) (it.memory[task->out[0].object] + task->out[0].offset);
    const float *b =
        op == SL_OP_LAYERNORM ? (const float *) (void *) (it.memory[task->in[2].object] + task->in[2].offset) : NULL;
    int64_t d = model->dim;
    for (int64_t row = 0; row < 3; row++) {
        double mean = 0, square = 0;
        for (int64_t i = 0; i < d && b; i++)
            mean += (double) x[row * d + i] / (double) d;
        for (int64_t i = 0; i < d; i++)
            square += pow((double) x[row * d + i] - mean, 2) / (double) d;
        for (int64_t i = 0; i < d; i++) {
            double want = ((double) x[row * d + i] - mean) / sqrt(square + eps) * (double) w[i];
            CHECK_NEAR(y[row * d + i], want + (b ? (double) b[i] : 0), 1e-5);
        }
    }
    interpret_destroy(&it);
}

TEST(epsilon_of_the_config)
{
    static const char llama[] =
        "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 1, "
        "\"num_attention_heads\": 4, \"vocab_size\": 61, \"rms_norm_eps\": %g}";
    static const char gpt2[] =
        "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 1, \"n_head\": 4, \"vocab_size\": 61, "
        "\"n_positions\": 16, \"resid_pdrop\": 0, \"embd_pdrop\": 0, \"attn_pdrop\": 0, "
        "\"layer_norm_epsilon\": %g}";
    static const double values[] = {0.25, 0.004};
    for (int64_t i = 0; i < SL_COUNT(values); i++)
        for (int family = 0; family < 2; family++) {
            char text[512];
            sl_model model;
            snprintf(text, sizeof text, family ? gpt2 : llama, values[i]);
            write_text("eps.json", text);
            CHECK_OK(sl_model_find(test_path("eps.json"), &model));
            check_norm(&model, family ? SL_OP_LAYERNORM : SL_OP_RMSNORM, values[i]);
        }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(interleaved_rotation_is_written_in_halves);
    RUN(qwen3_comes_back);
    RUN(order_of_rows);
    RUN(every_dimension_must_agree);
    RUN(weights_must_be_finite);
    RUN(language_model_of_a_multimodal_one);
    RUN(epsilon_of_the_config);
    return test_end();
}
