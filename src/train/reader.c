/* A step that is not full repeats its last position and its last token (ops/cached_attention.h): launches never change. */
#include "train/reader.h"

#include <inttypes.h>

sl_status sl_reader_check(const sl_reader *r, const char *model, const int32_t *tokens, int64_t count, int64_t at)
{
    if (count > r->capacity - at)
        return sl_fail(SL_E_USAGE, "the text has %" PRId64 " tokens, but memory is planned for %" PRId64, at + count,
                       r->capacity);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= r->words)
            return sl_fail(SL_E_USAGE, "token %" PRId32 " is none of the %" PRId64 " of model %s", tokens[i], r->words,
                           model);
    return SL_OK;
}

sl_status sl_reader_step(const sl_reader *r, const int32_t *tokens, int64_t count, int64_t at, int32_t *staging,
                         float *logits)
{
    const int32_t *data = r->program->chunks[0].data;
    int32_t *ids = staging, *positions = staging + r->rows;
    const size_t bytes = (size_t) r->rows * sizeof *ids;
    for (int64_t i = 0; i < r->rows; i++) {
        ids[i] = tokens[SL_MIN(i, count - 1)];
        positions[i] = (int32_t) (at + SL_MIN(i, count - 1));
    }
    SL_TRY(sl_engine_write(r->engine, data[SL_INPUT_TOKENS], 0, ids, bytes));
    SL_TRY(sl_engine_write(r->engine, data[SL_INPUT_POSITIONS], 0, positions, bytes));
    SL_TRY(sl_engine_step(r->engine));
    return sl_engine_read(r->engine, r->program->result_object, 0, logits, (size_t) r->words * sizeof *logits);
}
