/*
 * `sluice inspect`: what a model's folder holds and what it takes to train it. Headers and config.json are read, weights are not
 * (but where a tied model's file has a head too: whether it is a copy decides how many parameters there are).
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "core/json.h"
#include "core/log.h"
#include "train/companions.h"
#include "train/prediction.h"
#include "train/tied_head.h"
#include "train/weights.h"

static const char usage[] = "usage: sluice inspect MODEL [--seqlen S] [--hw NAME|FILE] [--json]\n"
                            "\n"
                            "Shows what a model is (MODEL: a folder, a config.json, a name from `sluice\n"
                            "models`, or ORG/NAME in the local Hugging Face cache), which weights, tokenizer\n"
                            "and chat template lie beside it, and the memory that training it takes: with\n"
                            "everything on the device, and with the least device memory and the host memory\n"
                            "that goes with it. Reads no weights.";

static const sl_option table[] = {
    {"seqlen", "TOKENS", SL_OPT_I64, NULL, "Training",
     "sequence length to plan for. Default: 2048, or the model's positions where it has fewer"},
    {"hw", "NAME|FILE", SL_OPT_STRING, "h200", "Training", "hardware profile to plan for"},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object instead of text"},
};

enum { PRECISIONS = 2, LIST_BYTES = 1024, CONFIG_LIMIT = 64 << 20 };
static const char *const precisions[PRECISIONS] = {"bf16", "bf16-master"};

/* What training takes in one precision. `why_not`: no budgets would do. */
typedef struct needs {
    bool possible;
    size_t resident[SL_TIER_COUNT], least[SL_TIER_COUNT];
    double tokens_per_s[2]; /* with everything on the device, and with the least */
    char why_not[512];
} needs;

typedef struct inspected {
    const char *name;
    char path[SL_MODEL_PATH_BYTES];   /* the folder or config.json; "": a preset */
    char folder[SL_MODEL_PATH_BYTES]; /* in which weights and other files may lie; "": none */
    sl_model model;
    bool has_weights;
    int64_t tensors, files, bytes, n_unused;
    int64_t of_dtype[SL_FILE_DTYPE_COUNT]; /* tensors */
    char unused[LIST_BYTES], problem[LIST_BYTES], companions[LIST_BYTES];
    const char *chat_template; /* where it is; NULL: there is none */
    int64_t seqlen;
    const char *hardware;
    needs needs[PRECISIONS];
} inspected;

/* ---- weights ---- */

static void count_tensors(const sl_tensors *tensors, inspected *x)
{
    for (int64_t i = 0; i < sl_tensors_count(tensors); i++) {
        const sl_tensor *t = sl_tensors_at(tensors, i);
        x->of_dtype[t->dtype]++;
        x->bytes += t->bytes;
        x->files = SL_MAX(x->files, (int64_t) t->file + 1);
    }
    x->tensors = sl_tensors_count(tensors);
}

/* Do they belong to the model? The first that does not becomes x->problem. */
static sl_status compare_with_model(const sl_tensors *tensors, inspected *x)
{
    const sl_program_config config = {.chunking = {1, 1, 1}, .max_segments = 1}; /* the smallest with all parameters */
    sl_program *program = NULL;
    sl_text names = {0};
    SL_TRY(sl_program_create(&config, sl_build_model, &x->model, &program));
    sl_status status = SL_OK;
    for (int32_t p = 0; p < program->n_params && !x->problem[0]; p++)
        if (sl_param_check(tensors, &program->params[p]) != SL_OK)
            snprintf(x->problem, sizeof x->problem, "%s", sl_error_message());
    if (!x->problem[0] && sl_params_check_unused(tensors, program->params, program->n_params) != SL_OK)
        snprintf(x->problem, sizeof x->problem, "%s", sl_error_message());
    status = sl_params_left_out(tensors, program->params, program->n_params, &names, &x->n_unused);
    if (status == SL_OK)
        status = sl_text_status(&names);
    snprintf(x->unused, sizeof x->unused, "%s", names.data ? names.data : "");
    sl_text_free(&names);
    sl_program_destroy(program);
    return status;
}

static sl_status look_at_weights(const sl_setup *setup, inspected *x)
{
    char path[1024];
    sl_tensors *tensors;
    sl_status status = sl_weights_find(setup, path);
    if (status == SL_OK && !path[0])
        return SL_OK;
    if (status == SL_OK)
        status = sl_tensors_open(path, &tensors);
    if (status == SL_E_MEMORY)
        return status;
    if (status != SL_OK) {
        snprintf(x->problem, sizeof x->problem, "%s", sl_error_message());
        return SL_OK;
    }
    x->has_weights = true;
    count_tensors(tensors, x);
    status = sl_tied_head_resolve(path, &x->model);
    if (status == SL_OK)
        status = compare_with_model(tensors, x);
    sl_tensors_close(tensors);
    return status;
}

/* ---- files beside them ---- */

static bool has_file(const inspected *x, const char *name)
{
    char path[SL_MODEL_PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", x->folder, name);
    return x->folder[0] && sl_file_exists(path);
}

/* A template may be a key of tokenizer_config.json. */
static bool has_template_key(const inspected *x)
{
    char path[SL_MODEL_PATH_BYTES + 64], *text;
    size_t length;
    sl_region *region = NULL;
    const sl_json *root, *key = NULL;
    snprintf(path, sizeof path, "%s/tokenizer_config.json", x->folder);
    if (!has_file(x, "tokenizer_config.json") || sl_file_read_all(path, CONFIG_LIMIT, &text, &length) != SL_OK)
        return false;
    if (sl_region_create(&region) == SL_OK && sl_json_parse(region, path, text, length, &root) == SL_OK)
        key = sl_json_get(root, "chat_template");
    bool found = key && key->kind != SL_JSON_NULL;
    sl_region_destroy(region);
    sl_free(text);
    return found;
}

static void look_at_companions(const sl_setup *setup, inspected *x)
{
    uint32_t present = sl_companions_present(setup);
    size_t used = 0;
    for (int i = 0; i < 32; i++)
        if (present & (uint32_t) 1 << i && used < LIST_BYTES - 64)
            used += (size_t) snprintf(x->companions + used, LIST_BYTES - used, "%s%s", used ? ", " : "",
                                      sl_companion_name(i));
    x->chat_template = has_file(x, "chat_template.jinja")  ? "chat_template.jinja"
                       : has_file(x, "chat_template.json") ? "chat_template.json"
                       : has_template_key(x)               ? "tokenizer_config.json"
                                                           : NULL;
}

/* ---- what training takes ---- */

/* `device_bytes` 0: as much as it takes. */
static sl_status predict(const inspected *x, const char *precision, size_t device_bytes, sl_prediction **prediction,
                         sl_prediction_view *view)
{
    sl_job *job;
    const size_t any = (size_t) 1 << 50; /* more than any machine has: the job decides, not the profile */
    char seqlen[32], budget[32], unlimited[32];
    sl_status status;
    snprintf(seqlen, sizeof seqlen, "%lld", (long long) x->seqlen);
    snprintf(budget, sizeof budget, "%zu", device_bytes ? device_bytes : any);
    snprintf(unlimited, sizeof unlimited, "%zu", any);
    *prediction = NULL;
    SL_TRY(sl_job_create(&job));
    SL_TRY_GOTO(sl_job_set(job, "model", x->path[0] ? x->path : x->name), done);
    SL_TRY_GOTO(sl_job_set(job, "seqlen", seqlen), done);
    SL_TRY_GOTO(sl_job_set(job, "hw", x->hardware), done);
    SL_TRY_GOTO(sl_job_set(job, "precision", precision), done);
    SL_TRY_GOTO(sl_job_set(job, "device-mem", budget), done);
    SL_TRY_GOTO(sl_job_set(job, "host-mem", unlimited), done);
    SL_TRY_GOTO(sl_prediction_create(job, prediction), done);
    sl_prediction_view_of(*prediction, view);
    status = SL_OK;
done:
    sl_job_destroy(job);
    return status;
}

static sl_status find_needs(const inspected *x, const char *precision, needs *n)
{
    sl_prediction *prediction;
    sl_prediction_view view;
    size_t device;
    SL_TRY(predict(x, precision, 0, &prediction, &view));
    memcpy(n->resident, view.predicted.peak_bytes, sizeof n->resident);
    n->tokens_per_s[0] = view.predicted.tokens_per_s;
    device = view.min_bytes[SL_TIER_DEVICE];
    n->possible = view.feasible && device;
    snprintf(n->why_not, sizeof n->why_not, "%s", view.why_not ? view.why_not : "no device memory would do");
    sl_prediction_destroy(prediction);
    if (!n->possible)
        return SL_OK;
    SL_TRY(predict(x, precision, device, &prediction, &view));
    n->possible = view.feasible;
    n->least[SL_TIER_DEVICE] = device;
    n->least[SL_TIER_HOST] = SL_MAX(view.min_bytes[SL_TIER_HOST], (size_t) 1);
    n->tokens_per_s[1] = view.predicted.tokens_per_s;
    sl_prediction_destroy(prediction);
    return SL_OK;
}

/* ---- printing ---- */

static void print_weights(const inspected *x)
{
    char bytes[32], count[32];
    if (x->has_weights) {
        printf("  weights     %s tensor%s in %lld file%s, %s:", sl_format_count(x->tensors, count),
               sl_cli_plural(x->tensors), (long long) x->files, sl_cli_plural(x->files),
               sl_format_bytes((size_t) x->bytes, bytes));
        const char *comma = "";
        for (int d = 0; d < SL_FILE_DTYPE_COUNT; d++)
            if (x->of_dtype[d]) {
                printf("%s %s %s", comma, sl_file_dtype_name((sl_file_dtype) d),
                       sl_format_count(x->of_dtype[d], count));
                comma = ",";
            }
        printf("\n");
        if (x->n_unused)
            printf("              %lld without use here: %.160s\n", (long long) x->n_unused, x->unused);
    } else if (!x->problem[0])
        printf("  weights     none\n");
    if (x->problem[0])
        printf("  problem     %s\n", x->problem);
}

static void print_page(const inspected *x)
{
    const sl_model *m = &x->model;
    char a[32], b[32], c[32];
    printf("%s: family %s, %s parameters, head %s\n", x->name, m->family->name,
           sl_format_count(sl_model_parameters(m), a), m->tied ? "tied to the embedding" : "of its own");
    printf(
        "  sizes       %lld layers, dim %lld, %lld heads of %lld (%lld for keys and values), ffn %lld, vocabulary %s\n",
        (long long) m->layers, (long long) m->dim, (long long) m->heads, (long long) m->head_dim,
        (long long) m->kv_heads, (long long) m->ffn, sl_format_count(m->vocab, b));
    if (m->max_seqlen || m->max_positions)
        printf("  positions   %s\n", sl_format_count(m->max_seqlen ? m->max_seqlen : m->max_positions, a));
    print_weights(x);
    printf("  files       %s\n", x->companions[0] ? x->companions : "no tokenizer");
    printf("  template    %s\n", x->chat_template ? x->chat_template : "no chat template");
    printf("training with --seqlen %s (AdamW, profile %s):\n", sl_format_count(x->seqlen, a), x->hardware);
    printf("  %-12s %-26s   %s\n", "--precision", "all on the device", "least device memory + host memory with it");
    for (int i = 0; i < PRECISIONS; i++) {
        const needs *n = &x->needs[i];
        char slow[32], fast[32];
        if (!n->possible) {
            printf("  %-12s does not fit: %s\n", precisions[i], n->why_not);
            continue;
        }
        printf("  %-12s %10s %9s tok/s   %10s + %10s %9s tok/s\n", precisions[i],
               sl_format_bytes_up(n->resident[SL_TIER_DEVICE], a), sl_cli_speed(n->tokens_per_s[0], fast),
               sl_format_bytes_up(n->least[SL_TIER_DEVICE], b), sl_format_bytes_up(n->least[SL_TIER_HOST], c),
               sl_cli_speed(n->tokens_per_s[1], slow));
    }
}

static void put_needs(sl_json_writer *w, const char *precision, const needs *n)
{
    sl_json_begin_object(w, NULL);
    sl_json_put_string(w, "precision", precision);
    sl_json_put_bool(w, "possible", n->possible);
    if (n->possible) {
        sl_json_put_bytes(w, "resident_device_bytes", n->resident[SL_TIER_DEVICE]);
        sl_json_put_bytes(w, "resident_host_bytes", n->resident[SL_TIER_HOST]);
        sl_json_put_f64(w, "resident_tokens_per_s", n->tokens_per_s[0]);
        sl_json_put_bytes(w, "least_device_bytes", n->least[SL_TIER_DEVICE]);
        sl_json_put_bytes(w, "least_host_bytes", n->least[SL_TIER_HOST]);
        sl_json_put_f64(w, "least_tokens_per_s", n->tokens_per_s[1]);
    } else
        sl_json_put_string(w, "why_not", n->why_not);
    sl_json_end_object(w);
}

static void put_weights(sl_json_writer *w, const inspected *x)
{
    sl_json_begin_object(w, "weights");
    sl_json_put_i64(w, "tensors", x->tensors);
    sl_json_put_i64(w, "files", x->files);
    sl_json_put_i64(w, "bytes", x->bytes);
    sl_json_begin_object(w, "dtypes");
    for (int d = 0; d < SL_FILE_DTYPE_COUNT; d++)
        if (x->of_dtype[d])
            sl_json_put_i64(w, sl_file_dtype_name((sl_file_dtype) d), x->of_dtype[d]);
    sl_json_end_object(w);
    sl_json_put_i64(w, "unused", x->n_unused);
    sl_json_end_object(w);
}

static sl_status print_json(const inspected *x)
{
    const sl_model *m = &x->model;
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "model", x->name);
    sl_json_put_string(&w, "path", x->path);
    sl_json_put_string(&w, "family", m->family->name);
    sl_json_put_i64(&w, "parameters", sl_model_parameters(m));
    sl_json_put_bool(&w, "tied", m->tied);
    sl_json_put_i64(&w, "layers", m->layers);
    sl_json_put_i64(&w, "dim", m->dim);
    sl_json_put_i64(&w, "heads", m->heads);
    sl_json_put_i64(&w, "kv_heads", m->kv_heads);
    sl_json_put_i64(&w, "head_dim", m->head_dim);
    sl_json_put_i64(&w, "ffn", m->ffn);
    sl_json_put_i64(&w, "vocab", m->vocab);
    sl_json_put_i64(&w, "positions", m->max_seqlen ? m->max_seqlen : m->max_positions);
    if (x->has_weights)
        put_weights(&w, x);
    sl_json_put_string(&w, "problem", x->problem);
    sl_json_put_string(&w, "companions", x->companions);
    sl_json_put_string(&w, "chat_template", x->chat_template ? x->chat_template : "");
    sl_json_put_i64(&w, "seqlen", x->seqlen);
    sl_json_put_string(&w, "hardware", x->hardware);
    sl_json_begin_array(&w, "training");
    for (int i = 0; i < PRECISIONS; i++)
        put_needs(&w, precisions[i], &x->needs[i]);
    sl_json_end_array(&w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    return sl_cli_write(&w.text, NULL);
}

/* ---- the command ---- */

/* Only a file called config.json is the description of what lies beside it. */
static void find_folder(inspected *x)
{
    char *slash;
    snprintf(x->folder, sizeof x->folder, "%s", x->path);
    if (sl_dir_exists(x->path))
        return;
    slash = strrchr(x->folder, '/');
    if (strcmp(slash ? slash + 1 : x->folder, "config.json") != 0)
        x->folder[0] = 0;
    else if (slash)
        slash[slash == x->folder] = 0;
    else
        snprintf(x->folder, sizeof x->folder, ".");
}

static sl_status look_at_folder(inspected *x)
{
    sl_setup *setup;
    if (sl_model_is_preset(x->name))
        return SL_OK;
    SL_TRY(sl_model_locate(x->name, x->path));
    find_folder(x);
    SL_TRY(sl_alloc(&setup, 1, sizeof *setup));
    snprintf(setup->model_folder, sizeof setup->model_folder, "%s", x->folder);
    look_at_companions(setup, x);
    sl_status status = look_at_weights(setup, x);
    sl_free(setup);
    return status;
}

static int64_t default_seqlen(const sl_model *model)
{
    const int64_t positions = model->max_seqlen ? model->max_seqlen : model->max_positions;
    return positions ? SL_MIN(positions, (int64_t) 2048) : 2048;
}

static sl_status inspect(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    if (n_operands != 1)
        return sl_fail(SL_E_USAGE, "inspect needs a model: sluice inspect path/to/folder");
    inspected *x;
    SL_TRY(sl_alloc(&x, 1, sizeof *x));
    x->name = operands[0];
    x->hardware = sl_options_string(options, "hw");
    sl_status status = sl_model_find(x->name, &x->model);
    if (status == SL_OK)
        x->seqlen =
            sl_options_is_set(options, "seqlen") ? sl_options_i64(options, "seqlen") : default_seqlen(&x->model);
    if (status == SL_OK && x->seqlen < 1)
        status = sl_fail(SL_E_USAGE, "--seqlen %lld is too small: give at least 1", (long long) x->seqlen);
    if (status == SL_OK)
        status = look_at_folder(x);
    sl_log_set(NULL, NULL, SL_LOG_ERROR); /* every plan would repeat what has been said of the files */
    for (int i = 0; i < PRECISIONS && status == SL_OK; i++)
        status = find_needs(x, precisions[i], &x->needs[i]);
    if (status == SL_OK && sl_options_flag(options, "json"))
        status = print_json(x);
    else if (status == SL_OK)
        print_page(x);
    sl_free(x);
    return status;
}

const sl_cli_command sl_cli_inspect = {
    .usage = usage, .operands = "MODEL", .most_operands = 1, .table = table, .count = SL_COUNT(table), .run = inspect};
