/* `sluice models`: what can be named instead of given as a config.json. */
#include <stdio.h>

#include "cli/cli.h"
#include "core/json.h"
#include "model/model.h"

static const char usage[] = "usage: sluice models [--json]\n"
                            "\n"
                            "Lists the presets that --model takes by name, with their dimensions.";

static const sl_option table[] = {
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object instead of a table"},
};

static void print_table(const sl_model *models, int64_t count)
{
    printf("%-14s %-6s %14s %7s %6s %6s %5s %6s %8s\n", "name", "family", "parameters", "layers", "dim", "heads", "kv",
           "ffn", "vocab");
    for (int64_t i = 0; i < count; i++) {
        char parameters[32];
        printf("%-14s %-6s %14s %7lld %6lld %6lld %5lld %6lld %8lld\n", models[i].name, models[i].family->name,
               sl_format_count(sl_model_parameters(&models[i]), parameters), (long long) models[i].layers,
               (long long) models[i].dim, (long long) models[i].heads, (long long) models[i].kv_heads,
               (long long) models[i].ffn, (long long) models[i].vocab);
    }
}

static sl_status print_json(const sl_model *models, int64_t count)
{
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_begin_array(&w, "models");
    for (int64_t i = 0; i < count; i++) {
        sl_json_begin_object(&w, NULL);
        sl_json_put_string(&w, "name", models[i].name);
        sl_json_put_string(&w, "family", models[i].family->name);
        sl_json_put_i64(&w, "parameters", sl_model_parameters(&models[i]));
        sl_json_put_i64(&w, "layers", models[i].layers);
        sl_json_put_i64(&w, "dim", models[i].dim);
        sl_json_put_i64(&w, "heads", models[i].heads);
        sl_json_put_i64(&w, "kv_heads", models[i].kv_heads);
        sl_json_put_i64(&w, "head_dim", models[i].head_dim);
        sl_json_put_i64(&w, "ffn", models[i].ffn);
        sl_json_put_i64(&w, "vocab", models[i].vocab);
        sl_json_put_bool(&w, "tied", models[i].tied);
        sl_json_end_object(&w);
    }
    sl_json_end_array(&w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    return sl_cli_write(&w.text, NULL);
}

static sl_status list_models(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    const sl_model *models;
    int64_t count = sl_model_presets(&models);
    if (sl_options_flag(options, "json"))
        return print_json(models, count);
    print_table(models, count);
    return SL_OK;
}

const sl_cli_command sl_cli_models = {.usage = usage, .table = table, .count = SL_COUNT(table), .run = list_models};
