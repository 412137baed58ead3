/*
 * W + factor B A, tensor by tensor from file to file: no graph is built, so any family's model can be merged, and no more than an adapter's
 * two matrices and one block of rows is in memory. Sums are in f32 and rounded once, to the dtype of the file.
 *
 * A model in several files stays in these files: the sizes of its tensors do not change, so its index is copied as it is.
 *
 * The folder is written under another name and renamed when all of it is on disk.
 */
#include "train/merge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/bf16.h"
#include "core/file.h"
#include "core/pool.h"
#include "core/small_float.h"
#include "model/lora.h"
#include "model/safetensors.h"
#include "train/companions.h"

enum { BLOCK_BYTES = 4 << 20, NAME_BYTES = 512, PATH_BYTES = 1200, TILE_ROWS = 8 };

typedef struct merging {
    const char *adapter_folder, *out;
    char model_folder[SL_MODEL_PATH_BYTES];
    sl_tensors *model, *adapter;
    sl_lora lora;
    uint8_t *used; /* by the adapter's tensor */
    sl_pool *pool;
    float *rows;      /* BLOCK_BYTES: a block of W, and the merged one */
    uint8_t *rounded; /* BLOCK_BYTES / 2: the same in 16 bits; also raw bytes on their way */
    sl_merged merged;
} merging;

/* ---- an adapter's two matrices ---- */

/* The change of a tensor [n_rows, columns] of a file is left [n_rows, rank] times right [rank, columns]: B and A, or for a tensor that is
 * stored transposed the transposes of A and B. */
typedef struct change {
    const sl_tensor *a, *b; /* NULL: the tensor has no adapter */
    float *left, *right;
    int64_t n_rows, columns;
} change;

static const sl_tensor *find_matrix(const merging *m, const char *module, const char *which)
{
    static const char *const prefixes[] = {"", "model.", "transformer."}; /* that the model's file leaves out */
    char name[NAME_BYTES];
    const sl_tensor *found = NULL;
    for (int64_t i = 0; i < SL_COUNT(prefixes) && !found; i++) {
        snprintf(name, sizeof name, "base_model.model.%s%s.%s.weight", prefixes[i], module, which);
        found = sl_tensors_find(m->adapter, name);
    }
    return found;
}

static bool is_matrix(const sl_tensor *t, int64_t rows, int64_t columns)
{
    return t->rank == 2 && t->dim[0] == rows && t->dim[1] == columns;
}

/* *transposed: the file has W as [in, out], which only square matrices leave open. */
static sl_status check_shapes(const merging *m, const sl_tensor *w, const change *c, bool *transposed)
{
    const int64_t rank = m->lora.rank;
    const bool plain = w->rank == 2 && is_matrix(c->a, rank, w->dim[1]) && is_matrix(c->b, w->dim[0], rank);
    const bool turned = w->rank == 2 && is_matrix(c->a, rank, w->dim[0]) && is_matrix(c->b, w->dim[1], rank);
    *transposed = plain && turned ? m->lora.transposed : turned;
    if (!plain && !turned)
        return sl_fail(
            SL_E_FORMAT,
            "%s: tensor \"%s\" is no matrix of rank %lld beside \"%s\": does the adapter belong to another model?",
            sl_tensors_file(m->adapter, c->a), c->a->name, (long long) rank, w->name);
    if (w->dtype != SL_FILE_F32 && w->dtype != SL_FILE_F16 && w->dtype != SL_FILE_BF16)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" is %s, and merging writes F32, F16 or BF16: `sluice export %s --out DIR` "
                       "converts it",
                       sl_tensors_file(m->model, w), w->name, sl_file_dtype_name(w->dtype), m->model_folder);
    return SL_OK;
}

static sl_status read_matrices(merging *m, const sl_tensor *w, bool transposed, change *c)
{
    const sl_tensor *left = transposed ? c->a : c->b, *right = transposed ? c->b : c->a;
    const int64_t rank = m->lora.rank;
    c->n_rows = w->dim[0], c->columns = w->dim[1];
    SL_TRY(sl_alloc(&c->left, left->count, sizeof *c->left));
    SL_TRY(sl_alloc(&c->right, right->count, sizeof *c->right));
    if (transposed) {
        SL_TRY(sl_tensors_read_transposed(m->adapter, left, 0, c->n_rows, SL_F32, c->left));
        return sl_tensors_read_transposed(m->adapter, right, 0, rank, SL_F32, c->right);
    }
    SL_TRY(sl_tensors_read(m->adapter, left, 0, left->count, SL_F32, c->left));
    return sl_tensors_read(m->adapter, right, 0, right->count, SL_F32, c->right);
}

/* What the adapter does to a tensor of the model: left NULL where it does nothing. */
static sl_status find_change(merging *m, const sl_tensor *w, change *c)
{
    char module[NAME_BYTES];
    const char *end = strrchr(w->name, '.');
    bool transposed;
    *c = (change){0};
    if (!end || strcmp(end, ".weight") != 0 || strlen(w->name) >= sizeof module - 64)
        return SL_OK;
    snprintf(module, sizeof module, "%.*s", (int) (end - w->name), w->name);
    c->a = find_matrix(m, module, "lora_A");
    c->b = find_matrix(m, module, "lora_B");
    if (!c->a && !c->b)
        return SL_OK;
    if (!c->a || !c->b)
        return sl_fail(SL_E_FORMAT, "%s has only one of the two matrices for \"%s\"",
                       sl_tensors_file(m->adapter, c->a ? c->a : c->b), w->name);
    SL_TRY(check_shapes(m, w, c, &transposed));
    m->used[c->a - sl_tensors_at(m->adapter, 0)] = m->used[c->b - sl_tensors_at(m->adapter, 0)] = 1;
    m->merged.modules++;
    return read_matrices(m, w, transposed, c);
}

/* ---- one tensor ---- */

typedef struct block {
    const merging *m;
    const change *c;
    int64_t first, count; /* rows */
    sl_file_dtype dtype;
} block;

/* A row at a time, element by element in the order of the rank: the same for any number of threads. */
static void merge_rows(void *context, int64_t tile, int thread)
{
    const block *b = context;
    const int64_t columns = b->c->columns, rank = b->m->lora.rank;
    const float factor = b->m->merged.factor;
    (void) thread;
    for (int64_t row = tile * TILE_ROWS; row < SL_MIN((tile + 1) * TILE_ROWS, b->count); row++) {
        float *w = b->m->rows + row * columns;
        uint8_t *out = b->m->rounded + (size_t) (row * columns) * 2;
        for (int64_t k = 0; k < rank; k++) {
            const float left = factor * b->c->left[(b->first + row) * rank + k], *right = b->c->right + k * columns;
            for (int64_t i = 0; i < columns; i++)
                w[i] = fmaf(left, right[i], w[i]);
        }
        for (int64_t i = 0; i < columns && b->dtype != SL_FILE_F32; i++) {
            const uint16_t bits = b->dtype == SL_FILE_BF16 ? sl_f32_to_bf16(w[i]) : sl_f32_to_f16(w[i]);
            memcpy(out + 2 * i, &bits, 2);
        }
    }
}

static sl_status merge_tensor(merging *m, const sl_tensor *w, const change *c, sl_tensors_writer *writer)
{
    const int64_t step = BLOCK_BYTES / 4 / c->columns;
    if (step < 1)
        return sl_fail(SL_E_UNSUPPORTED, "tensor \"%s\" has rows of %lld elements: at most %d can be merged", w->name,
                       (long long) c->columns, BLOCK_BYTES / 4);
    for (int64_t row = 0; row < c->n_rows; row += step) {
        block b = {m, c, row, SL_MIN(step, c->n_rows - row), w->dtype};
        const int64_t count = b.count * c->columns;
        SL_TRY(sl_tensors_read(m->model, w, row * c->columns, count, SL_F32, m->rows));
        sl_pool_run(m->pool, merge_rows, &b, SL_DIV_UP(b.count, TILE_ROWS));
        if (w->dtype == SL_FILE_F32)
            SL_TRY(sl_tensors_writer_write(writer, m->rows, (size_t) count * 4));
        else
            SL_TRY(sl_tensors_writer_write(writer, m->rounded, (size_t) count * 2));
    }
    return SL_OK;
}

static sl_status copy_tensor(merging *m, const sl_tensor *w, sl_tensors_writer *writer)
{
    for (int64_t at = 0; at < w->bytes; at += BLOCK_BYTES / 2) {
        const size_t piece = (size_t) SL_MIN(w->bytes - at, (int64_t) BLOCK_BYTES / 2);
        SL_TRY(sl_tensors_read_raw(m->model, w, at, m->rounded, piece));
        SL_TRY(sl_tensors_writer_write(writer, m->rounded, piece));
    }
    return SL_OK;
}

/* ---- files ---- */

/* Every tensor of one of the model's files. */
static sl_status write_tensors(merging *m, int32_t file, sl_tensors_writer *writer)
{
    SL_TRY(sl_tensors_writer_metadata(writer, "format", "pt"));
    for (int64_t i = 0; i < sl_tensors_count(m->model); i++) {
        const sl_tensor *w = sl_tensors_at(m->model, i);
        if (w->file == file)
            SL_TRY(sl_tensors_writer_declare(writer, w->name, w->dtype, w->rank, w->dim));
    }
    for (int64_t i = 0; i < sl_tensors_count(m->model); i++) {
        const sl_tensor *w = sl_tensors_at(m->model, i);
        change c;
        if (w->file != file)
            continue;
        sl_status status = find_change(m, w, &c);
        if (status == SL_OK)
            status = c.left ? merge_tensor(m, w, &c, writer) : copy_tensor(m, w, writer);
        sl_free(c.left);
        sl_free(c.right);
        SL_TRY(status);
        m->merged.tensors++;
    }
    return sl_tensors_writer_commit(writer, NULL);
}

static sl_status write_files(merging *m, const char *folder)
{
    for (int32_t file = 0;; file++) {
        const sl_tensor *first = NULL;
        for (int64_t i = 0; i < sl_tensors_count(m->model) && !first; i++)
            first = sl_tensors_at(m->model, i)->file == file ? sl_tensors_at(m->model, i) : NULL;
        if (!first)
            return SL_OK;
        char path[PATH_BYTES];
        sl_tensors_writer *writer = NULL;
        const char *source = sl_tensors_file(m->model, first), *slash = strrchr(source, '/');
        snprintf(path, sizeof path, "%s/%s", folder, slash ? slash + 1 : source);
        SL_TRY(sl_tensors_writer_open(path, &writer));
        sl_status status = write_tensors(m, file, writer);
        sl_tensors_writer_destroy(writer);
        SL_TRY(status);
    }
}

static sl_status copy_file(const merging *m, const char *folder, const char *name, bool needed)
{
    enum { LARGEST = 64 << 20 };
    char from[PATH_BYTES], to[PATH_BYTES], *text;
    size_t length;
    snprintf(from, sizeof from, "%s/%s", m->model_folder, name);
    snprintf(to, sizeof to, "%s/%s", folder, name);
    if (!needed && !sl_file_exists(from))
        return SL_OK;
    SL_TRY(sl_file_read_all(from, LARGEST, &text, &length));
    sl_status status = sl_file_write_atomic(to, text, length);
    sl_free(text);
    return status;
}

static sl_status check_used(const merging *m)
{
    for (int64_t i = 0; i < sl_tensors_count(m->adapter); i++)
        if (!m->used[i])
            return sl_fail(SL_E_FORMAT,
                           "%s: the model in %s has no place for tensor \"%s\": does the adapter belong to "
                           "another model?",
                           sl_tensors_file(m->adapter, sl_tensors_at(m->adapter, i)), m->model_folder,
                           sl_tensors_at(m->adapter, i)->name);
    return SL_OK;
}

static sl_status write_folder(merging *m, const char *folder)
{
    sl_setup setup = {.model_folder = ""};
    snprintf(setup.model_folder, sizeof setup.model_folder, "%s", m->model_folder);
    SL_TRY(sl_dir_remove(folder));
    SL_TRY(sl_dir_create(folder));
    SL_TRY(write_files(m, folder));
    SL_TRY(check_used(m));
    SL_TRY(copy_file(m, folder, "config.json", true));
    SL_TRY(copy_file(m, folder, "model.safetensors.index.json", false));
    return sl_companions_copy(&setup, "", folder, m->rounded, BLOCK_BYTES / 2);
}

static sl_status open_both(merging *m)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/" SL_LORA_CONFIG, m->adapter_folder);
    SL_TRY(sl_lora_read_config(path, &m->lora));
    m->merged.rank = m->lora.rank;
    m->merged.factor = sl_lora_scale(&m->lora);
    snprintf(path, sizeof path, "%s/" SL_LORA_WEIGHTS, m->adapter_folder);
    SL_TRY(sl_tensors_open(path, &m->adapter));
    SL_TRY(sl_tensors_open(m->model_folder, &m->model));
    if (sl_tensors_in_pairs(m->model))
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s has \"rope_interleaved\": true, whose rows are not in the adapter's order: "
                       "train it for a step to have a checkpoint in the usual order",
                       m->model_folder);
    SL_TRY(sl_alloc(&m->used, sl_tensors_count(m->adapter), 1));
    SL_TRY(sl_alloc(&m->rows, BLOCK_BYTES / 4, sizeof *m->rows));
    return sl_alloc(&m->rounded, BLOCK_BYTES / 2, 1);
}

static sl_status check_paths(const merging *m)
{
    if (strlen(m->model_folder) > 900 || strlen(m->adapter_folder) > 900 || strlen(m->out) > 900)
        return sl_fail(SL_E_USAGE, "a folder's path has more than 900 bytes: use a shorter one");
    if (!sl_dir_exists(m->model_folder))
        return sl_fail(SL_E_USAGE,
                       "--model %s is no folder: name the one that holds the model's config.json and weights",
                       m->model_folder);
    if (sl_dir_exists(m->out) || sl_file_exists(m->out))
        return sl_fail(SL_E_USAGE, "%s is already there; give another --out", m->out);
    return SL_OK;
}

sl_status sl_merge(const char *model, const char *adapter, const char *out, int threads, sl_merged *merged)
{
    merging m = {.adapter_folder = adapter, .out = out};
    char temporary[PATH_BYTES];
    SL_TRY(sl_model_locate(model, m.model_folder));
    snprintf(temporary, sizeof temporary, "%s.tmp", out);
    SL_TRY(check_paths(&m));
    sl_status status = open_both(&m);
    if (status == SL_OK)
        status = sl_pool_create(threads, &m.pool);
    if (status == SL_OK) {
        status = write_folder(&m, temporary);
        if (status == SL_OK)
            status = sl_rename_durable(temporary, out);
        else
            sl_dir_remove(temporary);
    }
    sl_pool_destroy(m.pool);
    sl_tensors_close(m.model);
    sl_tensors_close(m.adapter);
    sl_free(m.used);
    sl_free(m.rows);
    sl_free(m.rounded);
    *merged = m.merged;
    return status;
}
