/*
 * Runs a program without plan, device or engine: every object on the heap, tasks one after the other with the ops' reference
 * kernels (or, on request, the CPU device's). What a step means, in the plainest form.
 *
 * Before each step all memory but persistent objects and data is filled with NaNs, so that reading what nobody wrote shows.
 */
#ifndef SL_TESTS_MODEL_INTERPRET_H
#define SL_TESTS_MODEL_INTERPRET_H

#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/rng.h"
#include "device/cpu/kernels/kernel.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "program/program.h"
#include "test.h"

/* The instruction set whose CPU kernels run instead of the references; -1: references. For interpreters created from now on. */
static int interpret_isa = -1;

typedef struct interpreter {
    sl_program *program;
    int isa;
    unsigned char **memory; /* by object */
    size_t workspace_bytes;
    void *workspace;
} interpreter;

static inline sl_program_config interpret_config(int64_t seqlen, int64_t sequences, int64_t chunk_tokens,
                                                 sl_precision precision)
{
    sl_program_config config = {
        .chunking = {seqlen, sequences, chunk_tokens}, .precision = precision, .weight_decay = 0.1f, .max_segments = 1};
    sl_optimizer_defaults(config.optimizer, config.optimizer_options[config.optimizer]);
    return config;
}

/* Zeroed, aligned as a device's arena is. */
static inline unsigned char *interpret_alloc(size_t bytes)
{
    unsigned char *memory = aligned_alloc(256, SL_ROUND_UP(bytes + 1, 256));
    memset(memory, 0, bytes);
    return memory;
}

static inline sl_launch interpret_launch(const interpreter *it, const sl_task *task)
{
    sl_launch launch = {.op = task->op,
                        .accumulate = task->accumulate,
                        .attrs = task->attrs,
                        .constants = task->constants,
                        .workspace = it->workspace,
                        .workspace_bytes = it->workspace_bytes};
    for (int i = 0; i < SL_MAX_IN; i++)
        if (task->in[i].object >= 0)
            launch.in[i] = (sl_operand){it->memory[task->in[i].object] + task->in[i].offset, task->in[i].type};
    for (int k = 0; k < SL_MAX_OUT; k++)
        if (task->out[k].object >= 0)
            launch.out[k] = (sl_operand){it->memory[task->out[k].object] + task->out[k].offset, task->out[k].type};
    return launch;
}

static inline const sl_cpu_kernel *interpret_kernel(const interpreter *it, const sl_launch *launch)
{
    return it->isa < 0 ? NULL : sl_cpu_kernel_find(launch, (sl_isa) it->isa);
}

static inline size_t interpret_workspace(const interpreter *it, const sl_launch *launch)
{
    const sl_cpu_kernel *kernel = interpret_kernel(it, launch);
    if (kernel)
        return kernel->workspace ? kernel->workspace(launch, 1) : 0;
    return sl_op(launch->op)->workspace ? sl_op(launch->op)->workspace(launch) : 0;
}

static inline interpreter interpret_graph(sl_graph_builder build, void *context, const sl_program_config *config)
{
    interpreter it = {.isa = interpret_isa};
    CHECK_OK(sl_program_create(config, build, context, &it.program));
    it.memory = calloc((size_t) it.program->n_objects, sizeof *it.memory);
    for (int32_t i = 0; i < it.program->n_objects; i++)
        it.memory[i] = interpret_alloc(it.program->objects[i].bytes);
    for (int32_t kind = 0; kind < it.program->n_signatures; kind++) {
        sl_launch launch = interpret_launch(&it, &it.program->tasks[it.program->signatures[kind].example]);
        it.workspace_bytes = SL_MAX(it.workspace_bytes, interpret_workspace(&it, &launch));
    }
    it.workspace = aligned_alloc(256, SL_ROUND_UP(it.workspace_bytes + 1, 256));
    return it;
}

static inline interpreter interpret_create(sl_model *model, const sl_program_config *config)
{
    return interpret_graph(sl_build_model, model, config);
}

static inline void interpret_destroy(interpreter *it)
{
    for (int32_t i = 0; i < it->program->n_objects; i++)
        free(it->memory[i]);
    free(it->memory);
    free(it->workspace);
    sl_program_destroy(it->program);
}

static inline void interpret_run_task(interpreter *it, int32_t task)
{
    sl_launch launch = interpret_launch(it, &it->program->tasks[task]);
    const sl_cpu_kernel *kernel = interpret_kernel(it, &launch);
    if (kernel)
        kernel->run(&launch, NULL);
    else
        sl_op(launch.op)->reference(&launch);
}

/* Forward and backward; with `updates` the optimizer too. */
static inline void interpret_step(interpreter *it, bool updates)
{
    const sl_program *p = it->program;
    for (int32_t i = 0; i < p->n_objects; i++)
        if (!p->objects[i].persistent && p->objects[i].class != SL_CLASS_DATA)
            memset(it->memory[i], 0xff, p->objects[i].bytes);
    for (int32_t task = 0; task < p->n_tasks; task++) {
        bool update = p->tasks[task].op == SL_OP_ADAMW || p->tasks[task].op == SL_OP_SGD;
        if (updates || !update)
            interpret_run_task(it, task);
    }
}

/* ---- data ---- */

static inline sl_step_params *interpret_step_params(interpreter *it)
{
    return (sl_step_params *) (void *) it->memory[it->program->step_object];
}

/* tokens and targets: [sequences, seqlen]. Segments are the chunk's sequences. */
static inline void interpret_set_data(interpreter *it, const int32_t *tokens, const int32_t *targets)
{
    const sl_program *p = it->program;
    int64_t seqlen = p->config.chunking.seqlen;
    for (int32_t c = 0; c < p->n_chunks; c++) {
        const sl_chunk *chunk = &p->chunks[c];
        int64_t first = chunk->first_sequence * seqlen + chunk->slice_offset;
        int32_t *positions = (int32_t *) (void *) it->memory[chunk->data[SL_INPUT_POSITIONS]];
        int32_t *segments = (int32_t *) (void *) it->memory[chunk->data[SL_INPUT_SEGMENTS]];
        int64_t boundaries = (int64_t) p->objects[chunk->data[SL_INPUT_SEGMENTS]].bytes / 4;
        memcpy(it->memory[chunk->data[SL_INPUT_TOKENS]], tokens + first, (size_t) chunk->tokens * 4);
        memcpy(it->memory[chunk->data[SL_INPUT_TARGETS]], targets + first, (size_t) chunk->tokens * 4);
        for (int64_t i = 0; i < chunk->tokens; i++)
            positions[i] = (int32_t) ((first + i) % seqlen);
        for (int64_t i = 0; i < boundaries; i++)
            segments[i] = (int32_t) (SL_MIN(i, chunk->n_sequences) * seqlen);
    }
    if (p->step_object >= 0)
        *interpret_step_params(it) = (sl_step_params){.learning_rate = 1e-3f,
                                                      .corrections = {{0.1f, 0.05f}},
                                                      .loss_scale = (float) (1.0 / (double) p->tokens),
                                                      .step = 1};
}

static inline double interpret_loss(const interpreter *it)
{
    double sum = 0;
    for (int32_t c = 0; c < it->program->n_chunks; c++)
        sum += ((const float *) (const void *) it->memory[it->program->losses_object])[c];
    return sum / (double) it->program->tokens;
}

/* ---- parameters ---- */

static inline unsigned char *interpret_param(const interpreter *it, int32_t param)
{
    const sl_param *p = &it->program->params[param];
    return it->memory[it->program->param_object[p->group_index]] + p->offset;
}

/* The object that holds a group's gradient; found by its class, group and size. */
static inline int32_t interpret_gradient_object(const interpreter *it, int32_t group)
{
    const sl_program *p = it->program;
    for (int32_t i = 0; i < p->n_objects; i++)
        if (p->objects[i].class == SL_CLASS_GRADIENT && p->objects[i].group == group &&
            p->objects[i].bytes == p->objects[p->param_object[group]].bytes)
            return i;
    return -1;
}

static inline unsigned char *interpret_gradient(const interpreter *it, int32_t param)
{
    const sl_param *p = &it->program->params[param];
    return it->memory[interpret_gradient_object(it, p->group_index)] + p->offset;
}

static inline float interpret_get(const void *data, sl_dtype dtype, int64_t i)
{
    return dtype == SL_BF16 ? sl_bf16_to_f32(((const sl_bf16 *) data)[i]) : ((const float *) data)[i];
}

static inline void interpret_put(void *data, sl_dtype dtype, int64_t i, float value)
{
    if (dtype == SL_BF16)
        ((sl_bf16 *) data)[i] = sl_f32_to_bf16(value);
    else
        ((float *) data)[i] = value;
}

static inline float interpret_noise(uint64_t seed, int64_t i)
{
    sl_rng4 r = sl_philox(seed, (uint64_t) i, 0);
    float sum = -2;
    for (int k = 0; k < 4; k++)
        sum += sl_rng_uniform(r.v[k]);
    return sum * 1.7320508f; /* variance 1 */
}

/* Every weight from a counter, the same in every precision and layout. */
static inline void interpret_init(interpreter *it, uint64_t seed, float std)
{
    for (int32_t param = 0; param < it->program->n_params; param++) {
        const sl_param *p = &it->program->params[param];
        for (int64_t i = 0; i < sl_type_count(&p->type); i++)
            interpret_put(interpret_param(it, param), p->type.dtype, i,
                          (p->init == SL_INIT_ONES ? 1.0f : 0.0f) + std * interpret_noise(seed + (uint64_t) param, i));
    }
}

static inline sl_status interpret_write(void *context, size_t offset, void *bytes, size_t length)
{
    memcpy((unsigned char *) context + offset, bytes, length);
    return SL_OK;
}

static inline sl_status interpret_read(void *context, size_t offset, void *bytes, size_t length)
{
    memcpy(bytes, (unsigned char *) context + offset, length);
    return SL_OK;
}

#endif
