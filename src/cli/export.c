/* `sluice export`: a run's weights as a folder for everyone else. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "core/json.h"
#include "train/export.h"

static const char usage[] = "usage: sluice export FROM --out DIR [--dtype f32|bf16|f16]\n"
                            "\n"
                            "Writes a Hugging Face folder without the optimizer's files: config.json, weights,\n"
                            "tokenizer, chat template and generation settings. FROM is a run's --out (its\n"
                            "newest checkpoint), a checkpoint, any Hugging Face folder (8-bit weights become\n"
                            "ordinary ones), or ORG/NAME in the local Hugging Face cache. Where a run kept f32\n"
                            "master weights, --dtype f32 and f16 export those.";

static const sl_option table[] = {
    {"out", "DIR", SL_OPT_STRING, NULL, "Output", "folder to write; must not exist or be empty"},
    {"dtype", "same|f32|bf16|f16", SL_OPT_CHOICE, "same", "Output",
     "of the weights; same: as they are, and bf16 for 8-bit ones"},
    {"shard-size", "BYTES", SL_OPT_BYTES, "5GB", "Output", "weights beyond that are divided into several files"},
    {"json", NULL, SL_OPT_FLAG, "false", "Output", "print one JSON object instead of text"},
};

static sl_status print_json(const sl_exported *done, const char *out)
{
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_json_put_string(&w, "from", done->from);
    sl_json_put_string(&w, "out", out);
    sl_json_put_string(&w, "dtype", sl_file_dtype_name(done->dtype));
    sl_json_put_i64(&w, "tensors", done->tensors);
    sl_json_put_i64(&w, "masters", done->masters);
    sl_json_put_i64(&w, "files", done->files);
    sl_json_put_i64(&w, "bytes", done->bytes);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    return sl_cli_write(&w.text, NULL);
}

static sl_status export_folder(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    const char *out = sl_options_string(options, "out"), *dtype = sl_options_string(options, "dtype");
    if (n_operands != 1 || !out)
        return sl_fail(SL_E_USAGE,
                       "export needs a run or a checkpoint, and --out: sluice export runs/a --out my-model");
    sl_export_config config = {.from = operands[0],
                               .out = out,
                               .converts = strcmp(dtype, "same") != 0,
                               .dtype = strcmp(dtype, "f32") == 0    ? SL_FILE_F32
                                        : strcmp(dtype, "bf16") == 0 ? SL_FILE_BF16
                                                                     : SL_FILE_F16,
                               .shard_bytes = (int64_t) sl_options_bytes(options, "shard-size")};
    sl_exported done;
    sl_cli_status_line("writing ...");
    sl_status status = sl_export(&config, &done);
    sl_cli_status_clear();
    SL_TRY(status);
    if (sl_options_flag(options, "json"))
        return print_json(&done, out);
    char tensors[32], bytes[32];
    printf("%s: %s tensors%s in %lld file%s, %s, %s, from %s\n", out, sl_format_count(done.tensors, tensors),
           done.masters ? " of the f32 master weights" : "", (long long) done.files, sl_cli_plural(done.files),
           sl_file_dtype_name(done.dtype), sl_format_bytes((size_t) done.bytes, bytes), done.from);
    return SL_OK;
}

const sl_cli_command sl_cli_export = {.usage = usage,
                                      .operands = "FROM",
                                      .most_operands = 1,
                                      .table = table,
                                      .count = SL_COUNT(table),
                                      .run = export_folder};
