/*
 * Which object an operand is. A graph's values become objects like this:
 *
 *     parameters            one object per group                     gradients   one per group, and one per further block that
 *     inputs                one per chunk, sequence or step, as                  uses a parameter
 *                           their scope says                         loss        slots of one object
 *     K/V and its gradient  packed: one per chunk; sliced: one per sequence, all its rows
 *     everything else       one per chunk, made when first written
 */
#include <string.h>

#include "program/internal.h"

int32_t sl_program_position(const builder *b, int32_t chunk)
{
    return (int32_t) (chunk % b->chunks_per_round);
}

int64_t sl_program_slice(const builder *b, int32_t chunk)
{
    return chunk % b->slices;
}

sl_status sl_program_add_object(builder *b, const sl_object *object, int32_t *out)
{
    sl_program *p = b->program;
    if (p->n_objects >= b->capacity_objects)
        return sl_fail(SL_E_INTERNAL, "a program has more objects than its graph has values (%d)", b->capacity_objects);
    sl_object *fresh = &p->objects[p->n_objects];
    *fresh = *object;
    fresh->producer = UNKNOWN_PRODUCER;
    *out = p->n_objects++;
    return SL_OK;
}

sl_object sl_program_object(const char *name, sl_object_class class, size_t bytes, int32_t group)
{
    return (sl_object){
        .name = name, .class = class, .bytes = bytes, .block = -1, .chunk = -1, .round = -1, .group = group};
}

/* ---- what exists before the first task ---- */

/* The object of an input in a chunk: its own, or the one that chunks of its scope share. */
static sl_status add_chunk_data(builder *b, int32_t chunk, sl_input_kind kind)
{
    sl_program *p = b->program;
    const sl_input_def *def = sl_input_of(kind);
    sl_chunk *c = &p->chunks[chunk];
    bool shared = def->scope == SL_PER_SEQUENCE && sl_program_slice(b, chunk) > 0;
    c->data[kind] = -1;
    if (!c->input[kind].rank)
        return SL_OK;
    if (def->scope == SL_PER_STEP || shared) {
        c->data[kind] = shared ? p->chunks[chunk - 1].data[kind] : p->step_object;
        return SL_OK;
    }
    sl_object object = sl_program_object(def->name, SL_CLASS_DATA, sl_type_bytes(&c->input[kind]), -1);
    object.chunk = chunk;
    object.round = (int32_t) (chunk / b->chunks_per_round);
    return sl_program_add_object(b, &object, &c->data[kind]);
}

static sl_status list_inputs(builder *b, int variant)
{
    const sl_graph *graph = b->graph[variant];
    if (!graph)
        return SL_OK;
    SL_TRY(sl_region_alloc(b->program->region, &b->inputs[variant], SL_INPUT_COUNT, sizeof *b->inputs[variant]));
    for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
        if (graph->inputs[kind] != SL_NO_VALUE)
            b->inputs[variant][kind] = graph->values[graph->inputs[kind]].type;
    return SL_OK;
}

sl_status sl_program_add_data(builder *b)
{
    sl_program *p = b->program;
    sl_object step = sl_program_object("step", SL_CLASS_DATA, SL_STEP_WORDS * 4, -1);
    const int64_t n_losses = SL_MAX(p->n_losses * p->n_chunks, 1); /* a step without any writes none */
    sl_object losses = sl_program_object("losses", SL_CLASS_RESULT, (size_t) n_losses * 4, -1);
    p->step_object = -1;
    if (!p->config.forward_only)
        SL_TRY(sl_program_add_object(b, &step, &p->step_object));
    SL_TRY(sl_program_add_object(b, &losses, &p->losses_object));
    for (int variant = 0; variant < VARIANTS; variant++)
        SL_TRY(list_inputs(b, variant));
    for (int32_t chunk = 0; chunk < p->n_chunks; chunk++) {
        p->chunks[chunk].input = b->inputs[b->variant[chunk]];
        for (int kind = 0; kind < SL_INPUT_COUNT; kind++)
            SL_TRY(add_chunk_data(b, chunk, (sl_input_kind) kind));
    }
    return SL_OK;
}

static sl_status add_state(builder *b, const char *what, sl_object_class class, int32_t group, sl_type type,
                           int32_t *out)
{
    const sl_param_group *g = &b->program->groups[group];
    sl_object object = sl_program_object(NULL, class, sl_type_bytes(&type), group);
    object.persistent = true;
    SL_TRY(sl_region_printf(b->program->region, &object.name, "%s%s%s.weights", what, what[0] ? "." : "", g->name));
    return sl_program_add_object(b, &object, out);
}

/* What generation keeps, one object for all chunks: the K/V of the text so far, and the logits, which each chunk overwrites. */
static sl_status add_kept(builder *b)
{
    sl_program *p = b->program;
    p->result_object = -1;
    for (sl_value v = 0; v < b->n_values; v++) {
        const sl_graph_value *value = &b->graph[0]->values[v];
        const bool cache = value->class == SL_VALUE_CACHE;
        if (!cache && value->class != SL_VALUE_RESULT)
            continue;
        sl_object object =
            sl_program_object(value->name, cache ? SL_CLASS_CONTEXT : SL_CLASS_RESULT, sl_type_bytes(&value->type), -1);
        object.block = value->block;
        object.persistent = cache;
        SL_TRY(sl_program_add_object(b, &object, &b->kept[v]));
        if (!cache)
            p->result_object = b->kept[v];
    }
    return SL_OK;
}

/* Parameters, and the states and master weights that optimizer and precision need; then what generation keeps. */
sl_status sl_program_add_persistent(builder *b)
{
    sl_program *p = b->program;
    const sl_program_config *config = &p->config;
    const sl_policy *policy = sl_policy_of(config->precision);
    SL_TRY(sl_region_alloc(p->region, &p->param_object, p->n_groups, sizeof *p->param_object));
    SL_TRY(sl_region_alloc(p->region, &p->master_object, p->n_groups, sizeof *p->master_object));
    for (int k = 0; k < SL_STATE_SLOTS; k++)
        SL_TRY(sl_region_alloc(p->region, &p->state_object[k], p->n_groups, sizeof *p->state_object[k]));
    for (int32_t g = 0; g < p->n_groups; g++) {
        const bool trained = !config->forward_only && !p->groups[g].frozen;
        p->master_object[g] = -1;
        const int64_t count = p->groups[g].count;
        SL_TRY(add_state(b, "", SL_CLASS_PARAMETER, g, sl_type_1d(b->dtype, count), &p->param_object[g]));
        for (int k = 0; k < SL_STATE_SLOTS; k++) {
            p->state_object[k][g] = -1;
            if (p->state_count[k][g])
                SL_TRY(add_state(b, sl_state_name(k), SL_CLASS_OPTIMIZER, g,
                                 sl_state_type(k, policy->moments, p->state_count[k][g]), &p->state_object[k][g]));
        }
        if (trained && policy->master)
            SL_TRY(add_state(b, "master", SL_CLASS_OPTIMIZER, g, sl_type_1d(SL_F32, count), &p->master_object[g]));
    }
    return add_kept(b);
}

/* ---- operands ---- */

static sl_object_class class_of(const builder *b, sl_value_class class)
{
    switch (class) {
    case SL_VALUE_CONTEXT: /* K/V that belongs to one chunk is an activation like any other */
        return b->sliced ? SL_CLASS_CONTEXT : SL_CLASS_ACTIVATION;
    case SL_VALUE_CONTEXT_GRADIENT:
        return b->sliced ? SL_CLASS_CONTEXT : SL_CLASS_HIDDEN;
    case SL_VALUE_GRADIENT:
        return SL_CLASS_HIDDEN;
    default:
        return SL_CLASS_ACTIVATION;
    }
}

/* The object of a value that belongs to a chunk or, as context, to the sequence whose first slice `chunk` is. */
static sl_status chunk_object(builder *b, int32_t chunk, sl_value root, size_t bytes, int32_t *out)
{
    const sl_graph_value *v = &b->graph[0]->values[root];
    int32_t position = sl_program_position(b, chunk);
    int32_t *slot = &b->slots[(int64_t) position * b->n_values + root];
    if (*slot < 0) {
        sl_object object = {.name = v->name,
                            .class = class_of(b, v->class),
                            .bytes = bytes,
                            .block = v->block,
                            .chunk = chunk,
                            .round = (int32_t) (chunk / b->chunks_per_round),
                            .group = -1};
        SL_TRY(sl_program_add_object(b, &object, slot));
    }
    *out = *slot;
    return SL_OK;
}

/* A slice writes (or reads back) its own rows of the context; attention sees the rows of all slices so far. */
static sl_status resolve_context(builder *b, int32_t chunk, sl_value root, int out_index, bool spans_slices,
                                 sl_use *use, uint32_t *accumulate)
{
    const sl_chunk *c = &b->program->chunks[chunk];
    size_t row_bytes = (size_t) use->type.dim[1] * sl_dtype_bytes(use->type.dtype);
    int32_t first_slice = chunk - (int32_t) sl_program_slice(b, chunk);
    size_t bytes = (size_t) b->program->config.chunking.seqlen * row_bytes;
    SL_TRY(chunk_object(b, first_slice, root, bytes, &use->object));
    if (spans_slices) {
        use->type.dim[0] = c->slice_offset + c->tokens;
        if (out_index >= 0 && use->type.dim[0] < b->program->config.chunking.seqlen)
            *accumulate |= 1u << out_index; /* the last slice, run first, writes every row */
    } else {
        use->offset = (size_t) c->slice_offset * row_bytes;
    }
    return SL_OK;
}

/* Has another block written its share of the same parameter's gradient? */
static bool is_shared_and_written(const builder *b, sl_value value)
{
    const sl_graph_value *values = b->graph[0]->values;
    for (sl_value v = 0; v < b->n_values; v++)
        if (v != value && values[v].class == SL_VALUE_PARAMETER_GRADIENT && values[v].param == values[value].param &&
            b->written[v])
            return true;
    return false;
}

/* A parameter that several blocks use (tied weights) has one gradient per block, added up at the end: the order of the sum must
 * not depend on how chunks are grouped into rounds. With a single chunk there is one order, and all write the same place. */
static sl_status resolve_gradient(builder *b, sl_value value, int out_index, sl_use *use, uint32_t *accumulate)
{
    sl_program *p = b->program;
    const sl_graph_value *v = &b->graph[0]->values[value];
    const sl_param *param = &p->params[v->param];
    bool single = p->n_chunks == 1, straight = single || v->block == b->owner_block[v->param];
    int32_t *object = straight ? &b->gradient[param->group_index] : &b->use_gradient[value];
    if (*object < 0) {
        size_t group_bytes = (size_t) p->groups[param->group_index].count * sl_dtype_bytes(b->dtype);
        sl_object fresh = sl_program_object(v->name, SL_CLASS_GRADIENT,
                                            straight ? group_bytes : sl_type_bytes(&v->type), param->group_index);
        if (straight)
            SL_TRY(sl_region_printf(p->region, &fresh.name, "d.%s.weights", param->group));
        fresh.block = v->block;
        SL_TRY(sl_program_add_object(b, &fresh, object));
    }
    use->object = *object;
    use->offset = straight ? param->offset : 0;
    if (out_index >= 0 && (b->written[value] || (single && is_shared_and_written(b, value))))
        *accumulate |= 1u << out_index;
    return SL_OK;
}

static sl_status resolve_root(builder *b, int32_t chunk, sl_value value, int out_index, bool spans_slices, sl_use *use,
                              uint32_t *accumulate)
{
    const sl_chunk *c = &b->program->chunks[chunk];
    sl_value root = b->graph[0]->values[value].storage;
    const sl_graph_value *v = &b->graph[0]->values[root];
    use->offset = 0;
    switch (v->class) {
    case SL_VALUE_PARAMETER:
        use->object = b->program->param_object[b->program->params[v->param].group_index];
        use->offset = b->program->params[v->param].offset;
        return SL_OK;
    case SL_VALUE_INPUT:
        use->object = c->data[v->input];
        return SL_OK;
    case SL_VALUE_LOSS:
        use->object = b->program->losses_object;
        use->offset = (size_t) (v->loss * b->program->n_chunks + c->loss_slot) * 4;
        return SL_OK;
    case SL_VALUE_CACHE:
    case SL_VALUE_RESULT:
        use->object = b->kept[root];
        return SL_OK;
    case SL_VALUE_PARAMETER_GRADIENT:
        return resolve_gradient(b, value, out_index, use, accumulate);
    case SL_VALUE_CONTEXT:
    case SL_VALUE_CONTEXT_GRADIENT:
        if (b->sliced)
            return resolve_context(b, chunk, root, out_index, spans_slices, use, accumulate);
        break;
    default:
        break;
    }
    return chunk_object(b, chunk, root, sl_type_bytes(&b->graph[b->variant[chunk]]->values[root].type), &use->object);
}

sl_status sl_program_resolve(builder *b, int32_t chunk, sl_value value, int out_index, bool spans_slices, sl_use *use,
                             uint32_t *accumulate)
{
    SL_TRY(resolve_root(b, chunk, value, out_index, spans_slices, use, accumulate));
    use->offset += b->graph[b->variant[chunk]]->values[value].offset;
    return SL_OK;
}
