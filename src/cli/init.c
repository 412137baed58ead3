/* `sluice init`: a model's config.json, Hugging Face style, to edit and train from. */
#include <stdio.h>

#include "cli/cli.h"
#include "core/file.h"
#include "model/model.h"

static const char usage[] =
    "usage: sluice init --model M --out DIR\n\n"
    "Writes DIR/config.json for a model known by name (see `sluice models`) or for another config.json, with every key spelled\n"
    "out. Edit it and pass DIR as --model.";

static const sl_option table[] = {
    {"model", "NAME|PATH", SL_OPT_STRING, NULL, "Model", "a name from `sluice models`, or a config.json or its folder"},
    {"out", "DIR", SL_OPT_STRING, NULL, "Output", "folder to write to; made if missing"},
    {"force", NULL, SL_OPT_FLAG, "false", "Output", "replace a config.json that is already there"},
};

static sl_status init(const sl_options *options)
{
    const char *name = sl_options_string(options, "model"), *out = sl_options_string(options, "out");
    if (!name || !out)
        return sl_fail(SL_E_USAGE, "init needs --model and --out: sluice init --model llama3-1b --out my-model");
    sl_model model;
    SL_TRY(sl_model_find(name, &model));
    char path[4096];
    if (snprintf(path, sizeof path, "%s/config.json", out) >= (int) sizeof path)
        return sl_fail(SL_E_USAGE, "--out is longer than %d characters; give a shorter path", (int) sizeof path);
    if (sl_file_exists(path) && !sl_options_flag(options, "force"))
        return sl_fail(SL_E_USAGE, "%s is already there; give another --out, or --force to replace it", path);
    SL_TRY(sl_dir_create(out));
    SL_TRY(sl_model_write_config(&model, path));
    char count[32];
    printf("%s: %s, %s parameters; train it with: sluice train --model %s --data ... --seqlen ... --steps ...\n", path, model.name,
           sl_format_count(sl_model_parameters(&model), count), out);
    return SL_OK;
}

int sl_cli_init(int argc, char **argv)
{
    if (sl_cli_help(table, SL_COUNT(table), usage, argc, argv))
        return 0;
    sl_options *options;
    sl_status status = sl_options_create(table, SL_COUNT(table), &options);
    if (status != SL_OK)
        return sl_cli_fail(status);
    status = sl_options_parse_args(options, argc, argv);
    if (status == SL_OK)
        status = init(options);
    sl_options_destroy(options);
    return status == SL_OK ? 0 : sl_cli_fail(status);
}
