/*
 * `sluice init`: a model's config.json, Hugging Face style, to edit and train from; with --weights also the weights that a
 * run with the same seed would begin with. An initial weight is a function of seed, name and index, so the file is written
 * from one small buffer, whatever the model's size.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/file.h"
#include "model/model.h"
#include "train/store.h"

static const char usage[] = "usage: sluice init --model M --out DIR [--weights [--seed N] [--precision P]]\n"
                            "\n"
                            "Writes DIR/config.json for a model known by name (see `sluice models`) or for\n"
                            "another config.json, with every key that its arithmetic depends on spelled out,\n"
                            "and max_position_embeddings where it is given. Ids of special tokens are kept,\n"
                            "tokenizer files are not copied. Edit it and pass DIR as --model. With --weights\n"
                            "it also writes DIR/model.safetensors, the weights that `sluice train --seed N`\n"
                            "would begin with: then `sluice train --model DIR --seed N` uses them and runs to\n"
                            "the same bits.";

static const sl_option table[] = {
    {"model", "NAME|PATH", SL_OPT_STRING, NULL, "Model", "a name from `sluice models`, or a config.json or its folder"},
    {"weights", NULL, SL_OPT_FLAG, "false", "Model", "write model.safetensors with initial weights too"},
    {"seed", "N", SL_OPT_I64, "1", "Model", "--weights: what fixes them, as in `sluice train`"},
    {"precision", "f32|bf16|bf16-master", SL_OPT_CHOICE, "f32", "Model",
     "--weights: bf16 writes 2 bytes for each weight, enough to begin a bf16 run; the others 4, enough for every run"},
    {"out", "DIR", SL_OPT_STRING, NULL, "Output", "folder to write to; created if missing"},
    {"force", NULL, SL_OPT_FLAG, "false", "Output", "replace files that are already there"},
};

static sl_status save_all(sl_tensors_writer *writer, const sl_program *program, sl_store_drawn *drawn, void *buffer)
{
    SL_TRY(sl_tensors_writer_metadata(writer, "format", "pt")); /* what Hugging Face's loaders ask for */
    for (int32_t p = 0; p < program->n_params; p++)
        SL_TRY(sl_param_declare(writer, "", &program->params[p], drawn->dtype));
    for (int32_t p = 0; p < program->n_params; p++) {
        drawn->param = &program->params[p];
        SL_TRY(sl_param_save(writer, drawn->param, drawn->dtype, buffer, SL_PARAM_BUFFER_BYTES, sl_store_read_drawn,
                             drawn));
    }
    return sl_tensors_writer_commit(writer, NULL);
}

static sl_status write_weights(const sl_options *options, sl_model *model, const char *path)
{
    sl_program_config config = {.chunking = {1, 1, 1},
                                .max_segments = 1}; /* the smallest program that has the parameters */
    bool bf16 = strcmp(sl_options_string(options, "precision"), "bf16") == 0;
    sl_store_drawn drawn = {.seed = (uint64_t) sl_options_i64(options, "seed"), .dtype = bf16 ? SL_BF16 : SL_F32};
    sl_program *program = NULL;
    sl_tensors_writer *writer = NULL;
    void *buffer = NULL;
    sl_status status;
    SL_TRY_GOTO(sl_program_create(&config, sl_build_model, model, &program), done);
    SL_TRY_GOTO(sl_alloc_aligned(&buffer, SL_PARAM_BUFFER_BYTES, 1, 4096), done);
    SL_TRY_GOTO(sl_pool_create(0, &drawn.pool), done);
    SL_TRY_GOTO(sl_tensors_writer_open(path, &writer), done);
    status = save_all(writer, program, &drawn, buffer);
done:
    sl_tensors_writer_destroy(writer);
    sl_pool_destroy(drawn.pool);
    sl_free(buffer);
    sl_program_destroy(program);
    return status;
}

/* DIR/name, which must not be there yet. */
static sl_status target(const sl_options *options, const char *name, char path[1024])
{
    const char *out = sl_options_string(options, "out");
    if (snprintf(path, 1024, "%s/%s", out, name) >= 1024)
        return sl_fail(SL_E_USAGE, "--out has a path of %zu bytes: use one of at most 900", strlen(out));
    if (sl_file_exists(path) && !sl_options_flag(options, "force"))
        return sl_fail(SL_E_USAGE, "%s is already there; give another --out, or --force to replace it", path);
    return SL_OK;
}

static sl_status init(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    const char *name = sl_options_string(options, "model"), *out = sl_options_string(options, "out");
    bool weights = sl_options_flag(options, "weights");
    char config[1024], tensors[1024], count[32];
    if (!name || !out)
        return sl_fail(SL_E_USAGE, "init needs --model and --out: sluice init --model llama3.2-1b --out my-model");
    if (sl_options_i64(options, "seed") < 0)
        return sl_fail(SL_E_USAGE, "--seed %lld is too small: give at least 0",
                       (long long) sl_options_i64(options, "seed"));
    sl_model model;
    SL_TRY(sl_model_find(name, &model));
    SL_TRY(target(options, "config.json", config));
    if (weights)
        SL_TRY(target(options, "model.safetensors", tensors));
    SL_TRY(sl_dir_create(out));
    const char *dtype = strcmp(sl_options_string(options, "precision"), "bf16") == 0 ? "bfloat16" : "float32";
    SL_TRY(sl_model_write_config_with(&model, weights ? dtype : NULL, config));
    if (weights)
        SL_TRY(write_weights(options, &model, tensors));
    printf("%s%s%s: %s, %s parameters\ntrain it with: sluice train --model %s --data ... --seqlen ... --steps ...\n",
           config, weights ? ", " : "", weights ? tensors : "", model.name,
           sl_format_count(sl_model_parameters(&model), count), out);
    return SL_OK;
}

const sl_cli_command sl_cli_init = {.usage = usage, .table = table, .count = SL_COUNT(table), .run = init};
