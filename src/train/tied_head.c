/*
 * "tie_word_embeddings" of config.json is often wrong about the weights beside it, so the weights decide:
 *
 *     config.json    the files                          the model
 *     tied           no head                            tied
 *     tied           a head equal to the embedding      tied; the copy is not used
 *     tied           a head that differs                untied: it was trained apart and would be lost
 *     untied         a head                             untied
 *     untied         no head                            tied, with a warning: nothing else can be meant
 *
 * Following config.json alone makes a model of the third kind produce nonsense, and one of the fifth fail to load.
 */
#include "train/tied_head.h"

#include <stdio.h>
#include <string.h>

#include "core/log.h"
#include "program/program.h"

enum { PIECE = 1 << 16 };

/* The file's tensor that the model looks tokens up in; NULL: it has none. */
static sl_status find_embedding(const sl_tensors *tensors, const sl_model *model, const sl_tensor **table)
{
    const sl_program_config config = {.chunking = {1, 1, 1}, .max_segments = 1}; /* the smallest with all parameters */
    sl_program *program = NULL;
    sl_model copy = *model;
    *table = NULL;
    SL_TRY(sl_program_create(&config, sl_build_model, &copy, &program));
    for (int32_t p = 0; p < program->n_params; p++)
        if (strcmp(program->params[p].name, "embedding") == 0)
            *table = sl_param_tensor(tensors, &program->params[p], 0);
    sl_program_destroy(program);
    return SL_OK;
}

static sl_status compare(sl_tensors *tensors, const sl_tensor *head, const sl_tensor *table, bool *same)
{
    float *buffer;
    sl_status status = SL_OK;
    *same = head->count == table->count;
    SL_TRY(sl_alloc(&buffer, 2 * PIECE, sizeof *buffer));
    for (int64_t done = 0; done < head->count && *same && status == SL_OK; done += PIECE) {
        int64_t n = SL_MIN(head->count - done, (int64_t) PIECE);
        status = sl_tensors_read(tensors, head, done, n, SL_F32, buffer);
        if (status == SL_OK)
            status = sl_tensors_read(tensors, table, done, n, SL_F32, buffer + PIECE);
        *same = status == SL_OK && memcmp(buffer, buffer + PIECE, (size_t) n * sizeof *buffer) == 0;
    }
    sl_free(buffer);
    return status;
}

static sl_status decide(sl_tensors *tensors, sl_model *model)
{
    const sl_tensor *head = sl_tensors_find(tensors, "lm_head.weight"), *table;
    bool same;
    if (model->tied == !head)
        return SL_OK;
    SL_TRY(find_embedding(tensors, model, &table));
    if (!table) /* another model's files: loading them says so */
        return SL_OK;
    if (!head) {
        model->tied = true;
        sl_warn("%s has no lm_head.weight, but config.json does not tie the head to the embedding: they are tied now",
                sl_tensors_file(tensors, table));
        return SL_OK;
    }
    SL_TRY(compare(tensors, head, table, &same));
    if (!same) {
        model->tied = false;
        sl_info("%s: lm_head.weight differs from %s, although config.json ties them: both are trained, and the "
                "checkpoints' config.json says so",
                sl_tensors_file(tensors, head), table->name);
    }
    return SL_OK;
}

sl_status sl_tied_head_resolve(const char *weights, sl_model *model)
{
    sl_tensors *tensors;
    if (!weights[0] || model->custom)
        return SL_OK;
    sl_status status = sl_tensors_open(weights, &tensors);
    if (status != SL_OK)
        return status == SL_E_MEMORY ? status : SL_OK;
    status = decide(tensors, model);
    sl_tensors_close(tensors);
    return status;
}
