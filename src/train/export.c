/*
 * Tensors pass by one piece at a time:
 *
 *     model.safetensors, or "master.<name>" of optimizer.safetensors  ->  f32  ->  dtype  ->  out.tmp/model*.safetensors  ->  out
 *
 * A checkpoint of a run with f32 master weights has bf16 weights beside them. For f32 and f16 the master weights are exported: they are
 * what was trained, the others are their roundings.
 */
#include "train/export.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bf16.h"
#include "core/file.h"
#include "core/small_float.h"
#include "model/lora.h"
#include "program/program.h"
#include "train/checkpoint.h"
#include "train/companions.h"
#include "train/tied_head.h"

enum { PIECE = 1 << 18, COPY_BYTES = 1 << 20 };

typedef struct exporting {
    const sl_export_config *config;
    sl_exported *done;
    sl_model model;
    sl_program *program; /* for names and shapes */
    sl_tensors *weights, *optimizer;
    sl_tensors_writer *writer;
    float *values;
    uint16_t *halves;
} exporting;

/* ---- what to read ---- */

static sl_status no_model(const char *path)
{
    char adapter[1100];
    snprintf(adapter, sizeof adapter, "%s/" SL_LORA_CONFIG, path);
    if (sl_file_exists(adapter))
        return sl_fail(SL_E_USAGE,
                       "%s holds an adapter, not a whole model: `sluice merge --model BASE --adapter %s --out DIR`",
                       path, path);
    return sl_fail(SL_E_FORMAT, "%s holds no config.json, so no whole model", path);
}

static sl_status find_source(const char *from, char path[1024])
{
    char config[1100];
    int64_t newest;
    SL_TRY(sl_model_locate(from, path));
    snprintf(config, sizeof config, "%s/config.json", path);
    if (!sl_dir_exists(path))
        return sl_fail(SL_E_USAGE, "%s is no folder: name a run, a checkpoint or a Hugging Face folder", from);
    if (sl_file_exists(config))
        return SL_OK;
    if (strlen(path) > 900)
        return sl_fail(SL_E_USAGE, "the path of the run has %zu bytes: use one of at most 900", strlen(path));
    SL_TRY(sl_checkpoint_newest(path, &newest));
    snprintf(config, sizeof config, "%s/" SL_LORA_CONFIG, path);
    if (newest < 0 && sl_file_exists(config))
        return no_model(path);
    if (newest < 0)
        return sl_fail(
            SL_E_USAGE,
            "%s holds neither a config.json nor checkpoints: name a run, a checkpoint or a Hugging Face folder", from);
    snprintf(path + strlen(path), 1024 - strlen(path), "/checkpoints/step-%08" PRId64, newest);
    snprintf(config, sizeof config, "%s/config.json", path);
    return sl_file_exists(config) ? SL_OK : no_model(path);
}

static sl_status open_source(exporting *x)
{
    const sl_program_config smallest = {.chunking = {1, 1, 1}, .max_segments = 1};
    char path[1100];
    const char *from = x->done->from;
    SL_TRY(sl_model_find(from, &x->model));
    SL_TRY(sl_tied_head_resolve(from, &x->model));
    SL_TRY(sl_program_create(&smallest, sl_build_model, &x->model, &x->program));
    SL_TRY(sl_tensors_open(from, &x->weights));
    if (sl_tensors_in_pairs(x->weights))
        return sl_fail(
            SL_E_UNSUPPORTED,
            "%s was written by Sluice 0.1.0 or before, with rotated rows in pairs: resume the run, and export the "
            "checkpoint that it writes",
            from);
    for (int32_t p = 0; p < x->program->n_params; p++)
        SL_TRY(sl_param_check(x->weights, &x->program->params[p]));
    SL_TRY(sl_params_check_unused(x->weights, x->program->params, x->program->n_params));
    snprintf(path, sizeof path, "%s/optimizer.safetensors", from);
    bool wanted = x->config->converts && x->config->dtype != SL_FILE_BF16;
    return wanted && sl_file_exists(path) ? sl_tensors_open(path, &x->optimizer) : SL_OK;
}

static sl_file_dtype dtype_for(const exporting *x, const sl_tensor *tensor)
{
    if (x->config->converts)
        return x->config->dtype;
    return sl_file_dtype_config_name(tensor->dtype) ? tensor->dtype : SL_FILE_BF16;
}

/* ---- weights ---- */

static sl_status bad_value(const exporting *x, sl_tensors *from, const sl_tensor *tensor, int64_t i, float value,
                           sl_file_dtype to)
{
    (void) x;
    return sl_fail(SL_E_NOT_FINITE, "%s: tensor \"%s\" is %g at element %" PRId64 "%s%s%s",
                   sl_tensors_file(from, tensor), tensor->name, (double) value, i,
                   isfinite(value) ? ", too large for " : "", isfinite(value) ? sl_file_dtype_name(to) : "",
                   isfinite(value) ? "; use another --dtype" : "; such a model is of no use");
}

/* Elements x->values as `to`, in place of x->halves; returns what to write. NULL: *bad is no number of that type. */
static const void *narrow(exporting *x, sl_file_dtype to, int64_t count, int64_t *bad)
{
    for (int64_t i = 0; i < count; i++) {
        float value = x->values[i];
        if (to == SL_FILE_BF16)
            value = sl_bf16_to_f32(x->halves[i] = sl_f32_to_bf16(value));
        else if (to == SL_FILE_F16)
            value = sl_f16_to_f32(x->halves[i] = sl_f32_to_f16(value));
        if (!isfinite(value)) {
            *bad = i;
            return NULL;
        }
    }
    return to == SL_FILE_F32 ? (const void *) x->values : x->halves;
}

static sl_status write_tensor(exporting *x, const char *name, const sl_tensor *tensor)
{
    const sl_file_dtype to = dtype_for(x, tensor);
    sl_tensors *from = x->weights;
    char master_name[320];
    snprintf(master_name, sizeof master_name, "master.%s", name);
    const sl_tensor *master = x->optimizer ? sl_tensors_find(x->optimizer, master_name) : NULL;
    if (master && master->count == tensor->count && master->dtype == SL_FILE_F32) {
        tensor = master;
        from = x->optimizer;
        x->done->masters++;
    }
    for (int64_t done = 0; done < tensor->count; done += PIECE) {
        int64_t n = SL_MIN(tensor->count - done, (int64_t) PIECE), bad = 0;
        SL_TRY(sl_tensors_read(from, tensor, done, n, SL_F32, x->values));
        const void *bytes = narrow(x, to, n, &bad);
        if (!bytes)
            return bad_value(x, from, tensor, done + bad, x->values[bad], to);
        SL_TRY(sl_tensors_writer_write(x->writer, bytes, (size_t) n * sl_file_dtype_bytes(to)));
    }
    return SL_OK;
}

static sl_status write_tensors(exporting *x)
{
    const sl_program *program = x->program;
    SL_TRY(sl_tensors_writer_metadata(x->writer, "format", "pt"));
    for (int pass = 0; pass < 2; pass++)
        for (int32_t p = 0; p < program->n_params; p++)
            for (int i = 0; i < program->params[p].n_parts; i++) {
                const char *name = program->params[p].parts[i].name;
                const sl_tensor *tensor = sl_param_tensor(x->weights, &program->params[p], i);
                if (pass == 1) {
                    SL_TRY(write_tensor(x, name, tensor));
                    continue;
                }
                if (!x->done->tensors++)
                    x->done->dtype = dtype_for(x, tensor);
                SL_TRY(sl_tensors_writer_declare(x->writer, name, dtype_for(x, tensor), tensor->rank, tensor->dim));
            }
    return sl_tensors_writer_commit(x->writer, NULL);
}

static sl_status write_weights(exporting *x, const char *folder)
{
    char path[1100];
    const sl_written_file *files;
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    SL_TRY(sl_alloc_aligned((void **) &x->values, PIECE, sizeof *x->values, 64));
    SL_TRY(sl_alloc_aligned((void **) &x->halves, PIECE, sizeof *x->halves, 64));
    SL_TRY(sl_tensors_writer_open(path, &x->writer));
    sl_tensors_writer_split(x->writer, x->config->shard_bytes ? x->config->shard_bytes : SL_SHARD_BYTES);
    SL_TRY(write_tensors(x));
    int64_t count = sl_tensors_writer_files(x->writer, &files);
    x->done->files = count > 1 ? count - 1 : 1;
    for (int64_t i = count > 1; i < count; i++)
        x->done->bytes += files[i].bytes;
    return SL_OK;
}

/* ---- the folder ---- */

static sl_status write_companions(const exporting *x, const char *folder)
{
    sl_setup *setup;
    void *buffer = NULL;
    sl_status status;
    SL_TRY(sl_alloc(&setup, 1, sizeof *setup));
    snprintf(setup->model_folder, sizeof setup->model_folder, "%s", x->done->from);
    setup->companions = sl_companions_present(setup);
    status = sl_alloc(&buffer, COPY_BYTES, 1);
    if (status == SL_OK)
        status = sl_companions_copy(setup, "", folder, buffer, COPY_BYTES);
    sl_free(buffer);
    sl_free(setup);
    return status;
}

static sl_status check_out(const char *out)
{
    sl_region *region;
    const char **names;
    int64_t count = 0;
    if (sl_file_exists(out))
        return sl_fail(SL_E_USAGE, "%s is there already, and is no folder: give another --out", out);
    if (!sl_dir_exists(out))
        return SL_OK;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_dir_list(region, out, &names, &count);
    sl_region_destroy(region);
    SL_TRY(status);
    return count ? sl_fail(SL_E_USAGE, "%s is there already, and not empty: give another --out, or remove it", out)
                 : sl_dir_remove(out);
}

static sl_status write_folder(exporting *x, const char *folder)
{
    char path[1100];
    snprintf(path, sizeof path, "%s/config.json", folder);
    SL_TRY(sl_dir_remove(folder)); /* what an export that was killed has left */
    SL_TRY(sl_dir_create(folder));
    SL_TRY(write_companions(x, folder));
    SL_TRY(write_weights(x, folder));
    return sl_model_write_config_with(&x->model, sl_file_dtype_config_name(x->done->dtype), path);
}

static void destroy(exporting *x)
{
    sl_tensors_writer_destroy(x->writer);
    sl_tensors_close(x->optimizer);
    sl_tensors_close(x->weights);
    sl_program_destroy(x->program);
    sl_free(x->values);
    sl_free(x->halves);
}

/* "out/" without its slashes, and a folder beside it. */
static sl_status name_folders(const char *given, char out[1024], char temporary[1024])
{
    size_t length = strlen(given);
    while (length > 1 && given[length - 1] == '/')
        length--;
    if (length == 0 || length > 900)
        return sl_fail(SL_E_USAGE, "--out has a path of %zu bytes: use one of 1 to 900", length);
    snprintf(out, 1024, "%.*s", (int) length, given);
    snprintf(temporary, 1024, "%.*s.tmp", (int) length, given);
    return SL_OK;
}

sl_status sl_export(const sl_export_config *config, sl_exported *exported)
{
    exporting x = {.config = config, .done = exported};
    char out[1024], temporary[1024];
    sl_status status;
    *exported = (sl_exported){.files = 0};
    SL_TRY(name_folders(config->out, out, temporary));
    SL_TRY(check_out(out));
    SL_TRY(find_source(config->from, exported->from));
    status = open_source(&x);
    if (status == SL_OK) {
        status = write_folder(&x, temporary);
        if (status == SL_OK)
            status = sl_rename_durable(temporary, out);
        if (status != SL_OK) {
            char message[1024];
            snprintf(message, sizeof message, "%s", sl_error_message());
            sl_dir_remove(temporary);
            sl_fail(status, "%s", message);
        }
    }
    destroy(&x);
    return status;
}
