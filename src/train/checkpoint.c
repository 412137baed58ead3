/*
 * Writing and loading. The order of writing is the whole trick:
 *
 *     step-N.tmp/: copies, config, weights, optimizer (each fsynced) -> state.json with their hashes (fsynced) -> rename -> fsync parent
 *     -> only then remove what is older than the last `keep`
 *
 * A kill at any point leaves the older checkpoints untouched and at worst a .tmp folder, which the next run removes. Removal
 * renames to .tmp first, so that a half-removed folder never bears a final name either. Where step-N is there already, the two
 * exchange their names. test_checkpoint_crash loses power at every call.
 */
#include "train/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/hash.h"
#include "core/log.h"
#include "train/checkpoint_files.h"
#include "train/companions.h"
#include "train/identity.h"

/* ---- writing ---- */

/* Adapters are written without the model that they belong to. */
static bool is_written(const sl_store *store, sl_part part, int32_t param, bool adapters)
{
    return sl_store_has(store, part, param) &&
           (part != SL_PART_WEIGHT || store->program->params[param].adapter == adapters);
}

static sl_status write_parts(sl_store *store, sl_tensors_writer *writer, sl_part first, sl_part last)
{
    const sl_program *program = store->program;
    const bool adapters = sl_checkpoint_has_adapters(program);
    char prefix[32];
    SL_TRY(sl_tensors_writer_metadata(writer, "format", "pt")); /* what Hugging Face's loaders ask for */
    for (sl_part part = first; part <= last; part++)
        for (int32_t p = 0; p < program->n_params; p++) {
            const sl_param param = sl_store_param(store, part, p);
            if (is_written(store, part, p, adapters))
                SL_TRY(sl_param_declare(writer, sl_store_prefix(part, prefix), &param, sl_store_dtype(store, part)));
        }
    for (sl_part part = first; part <= last; part++)
        for (int32_t p = 0; p < program->n_params; p++) {
            if (!is_written(store, part, p, adapters))
                continue;
            sl_store_part from = {store, p, part};
            const sl_param param = sl_store_param(store, part, p);
            SL_TRY(sl_param_save(writer, &param, sl_store_dtype(store, part), store->buffer, SL_PARAM_BUFFER_BYTES,
                                 sl_store_read_part, &from));
        }
    return sl_tensors_writer_commit(writer, NULL);
}

/* What the writer has written: the first is what stands for all, the others are its shards. */
static sl_status list_files(const sl_tensors_writer *writer, sl_checkpoint_file *file, sl_checkpoint_shards *shards)
{
    const sl_written_file *files;
    int64_t count = sl_tensors_writer_files(writer, &files);
    file->bytes = files[0].bytes;
    file->hash = files[0].checksum;
    if (count == 1)
        return SL_OK;
    SL_TRY(sl_region_create(&shards->region));
    SL_TRY(sl_region_strdup(shards->region, files[0].name, &file->name));
    SL_TRY(sl_region_alloc(shards->region, &shards->files, count - 1, sizeof *shards->files));
    for (int64_t i = 1; i < count; i++) {
        sl_checkpoint_file *shard = &shards->files[shards->count++];
        *shard = (sl_checkpoint_file){.bytes = files[i].bytes, .hash = files[i].checksum};
        SL_TRY(sl_region_strdup(shards->region, files[i].name, &shard->name));
    }
    return SL_OK;
}

/* `shard_bytes` 0: always one file. */
static sl_status write_tensors(sl_store *store, const char *folder, sl_part first, sl_part last, int64_t shard_bytes,
                               sl_checkpoint_file *file, sl_checkpoint_shards *shards)
{
    char path[1200];
    sl_tensors_writer *writer = NULL;
    snprintf(path, sizeof path, "%s/%s", folder, file->name);
    SL_TRY(sl_tensors_writer_open(path, &writer));
    sl_tensors_writer_split(writer, shard_bytes);
    sl_status status = write_parts(store, writer, first, last);
    if (status == SL_OK)
        status = list_files(writer, file, shards);
    sl_tensors_writer_destroy(writer);
    return status;
}

static sl_status write_adapter_config(const sl_store *store, const sl_setup *setup, const char *path)
{
    const char *base = setup->init_from ? setup->init_from : setup->model_folder;
    sl_text text = {0};
    sl_status status = sl_lora_config_text(&setup->model.lora, store->program->params, store->program->n_params,
                                           base[0] ? base : setup->model.name, &text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, text.data, text.length);
    sl_text_free(&text);
    return status;
}

static sl_status write_config(sl_store *store, const char *folder, const sl_setup *setup, sl_checkpoint_file *file)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, file->name);
    const sl_file_dtype dtype = sl_file_dtype_of(sl_store_dtype(store, SL_PART_WEIGHT));
    if (sl_checkpoint_has_adapters(store->program))
        SL_TRY(write_adapter_config(store, setup, path));
    else
        SL_TRY(sl_model_write_config_with(&setup->model, sl_file_dtype_config_name(dtype), path));
    return sl_checkpoint_file_hash(path, store->buffer, SL_PARAM_BUFFER_BYTES, &file->bytes, &file->hash);
}

/* The newest checkpoint, intact or not, is where copies of files are that have gone from their source. */
static sl_status write_companions(sl_store *store, const char *folder, const sl_setup *setup)
{
    char before[1100] = "";
    int64_t newest;
    SL_TRY(sl_checkpoint_newest(setup->out, &newest));
    if (newest >= 0)
        snprintf(before, sizeof before, "%s/checkpoints/step-%08" PRId64, setup->out, newest);
    return sl_companions_copy(setup, before, folder, store->buffer, SL_PARAM_BUFFER_BYTES);
}

static sl_status write_state(const char *folder, const sl_identity *identity, const sl_options *options,
                             const sl_progress *progress, const sl_checkpoint_file *files,
                             const sl_checkpoint_shards *shards)
{
    char path[1200];
    sl_text text = {0};
    snprintf(path, sizeof path, "%s/state.json", folder);
    sl_checkpoint_state_text(identity, options, progress, files, shards, &text);
    sl_status status = sl_text_status(&text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, text.data, text.length);
    sl_text_free(&text);
    return status;
}

static sl_status write_folder(sl_store *store, const char *folder, const sl_identity *identity,
                              const sl_options *options, const sl_progress *progress)
{
    const int64_t shard_bytes = identity->setup->shard_bytes ? identity->setup->shard_bytes : SL_SHARD_BYTES;
    sl_checkpoint_file files[SL_CHECKPOINT_FILES];
    const bool adapters = sl_checkpoint_has_adapters(store->program);
    sl_checkpoint_shards shards = {0};
    sl_status status;
    sl_checkpoint_file_names(adapters, files);
    SL_TRY(sl_dir_remove(folder));
    SL_TRY(sl_dir_create(folder));
    SL_TRY(write_companions(store, folder, identity->setup));
    SL_TRY(write_config(store, folder, identity->setup, &files[SL_CHECKPOINT_CONFIG]));
    SL_TRY_GOTO(write_tensors(store, folder, SL_PART_WEIGHT, SL_PART_WEIGHT, adapters ? 0 : shard_bytes,
                              &files[SL_CHECKPOINT_MODEL], &shards),
                done);
    SL_TRY_GOTO(
        write_tensors(store, folder, SL_PART_STATE, SL_PART_MASTER, 0, &files[SL_CHECKPOINT_OPTIMIZER], &shards), done);
    status = write_state(folder, identity, options, progress, files, &shards);
done:
    sl_region_destroy(shards.region);
    return status;
}

/* A folder that is already there under the final name is of this very step: left by a damaged disk or a run that was set back. It
 * may be the only one, so it goes when the new one stands in its place. */
static sl_status publish(const char *temporary, const char *path)
{
    bool exchanged = false;
    if (sl_dir_exists(path)) {
        SL_TRY(sl_exchange_durable(temporary, path, &exchanged));
        if (!exchanged)
            SL_TRY(sl_checkpoint_remove(path));
    }
    if (!exchanged)
        return sl_rename_durable(temporary, path);
    if (sl_dir_remove(temporary) != SL_OK)
        sl_warn("an old checkpoint could not be removed: %s", sl_error_message());
    return SL_OK;
}

sl_status sl_checkpoint_write(sl_store *store, const sl_identity *identity, const sl_options *options,
                              const sl_progress *progress, char out_path[1024])
{
    char path[1024], temporary[1100];
    const char *out = identity->setup->out;
    snprintf(path, sizeof path, "%s/checkpoints/step-%08" PRId64, out, progress->step);
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    sl_status status = write_folder(store, temporary, identity, options, progress);
    bool written = status == SL_OK;
    if (written)
        status = publish(temporary, path);
    if (status != SL_OK) {
        char message[1024];
        snprintf(message, sizeof message, "%s", sl_error_message());
        if (!written) /* else it may hold what had the final name; the next resume removes it */
            sl_dir_remove(temporary);
        return sl_fail(status, "the checkpoint of step %" PRId64 " was not written: %s", progress->step, message);
    }
    memcpy(out_path, path, sizeof path);
    sl_checkpoint_prune(out, progress->step, identity->setup->keep);
    return SL_OK;
}

/* ---- loading ---- */

static sl_status load_part(sl_store *store, sl_tensors *tensors, sl_part part)
{
    char prefix[32];
    for (int32_t p = 0; p < store->program->n_params; p++) {
        sl_store_part to = {store, p, part};
        if (!is_written(store, part, p, sl_checkpoint_has_adapters(store->program)))
            continue;
        const sl_param param = sl_store_param(store, part, p);
        SL_TRY(sl_param_load_prefixed(tensors, sl_store_prefix(part, prefix), &param, sl_store_dtype(store, part),
                                      store->buffer, SL_PARAM_BUFFER_BYTES, sl_store_write_part, &to));
    }
    return SL_OK;
}

static sl_status load_file(sl_store *store, const char *folder, const char *name, sl_part first, sl_part last)
{
    char path[1200];
    sl_tensors *tensors = NULL;
    sl_status status = SL_OK;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!sl_file_exists(path)) /* then there is an index of several */
        snprintf(path, sizeof path, "%s/%s.index.json", folder, name);
    SL_TRY(sl_tensors_open(path, &tensors));
    for (sl_part part = first; part <= last && status == SL_OK; part++)
        status = load_part(store, tensors, part);
    sl_tensors_close(tensors);
    return status;
}

sl_status sl_checkpoint_load(sl_store *store, const sl_checkpoint *checkpoint)
{
    sl_checkpoint_file files[SL_CHECKPOINT_FILES];
    const bool adapters = sl_checkpoint_has_adapters(store->program);
    sl_checkpoint_file_names(adapters, files);
    if (!adapters)                    /* else the model is there already */
        SL_TRY(sl_store_zero(store)); /* padding */
    SL_TRY(load_file(store, checkpoint->path, files[SL_CHECKPOINT_MODEL].name, SL_PART_WEIGHT, SL_PART_WEIGHT));
    return load_file(store, checkpoint->path, files[SL_CHECKPOINT_OPTIMIZER].name, SL_PART_STATE, SL_PART_MASTER);
}
