/*
 * Reverse-mode differentiation of the op graph. Forward nodes are visited from last to first; each op's gradient rule emits the
 * backward launches, block by block, so the blocks' backward nodes lie one after the other in the order they run.
 *
 * Sums. The first contribution to a gradient writes it; later ones accumulate in the launch where the op can, and go through
 * a temporary and ADD where it cannot (or must not, see below).
 *
 * Passing. A residual addition passes its gradient on unchanged: the new gradient shares the old one's bytes (`storage`), so the
 * residual stream's gradient is one buffer from the head to the embedding. Adding into shared bytes is valid only if nothing
 * else will read them. `live` counts, per storage, the gradients that still await the rule of the node that made their
 * value. If there is more than one, the sum gets its own bytes.
 *
 * Biases. A bias's gradient is the sum of its output gradient's columns. Where the launch that wrote those bytes last, in the
 * same block, can sum what it writes (`sums_after` of its op), it does so, and no separate pass reads them again. Otherwise the
 * pass is emitted, and removed again when a later launch of the same block adds to those bytes and can sum what they held
 * (`sums_before`). Thus a norm's backward, which adds to the residual stream's gradient, yields the gradient of the projection's
 * bias. This does not work across blocks: all chunks of a block run before the next block, so the gradient would have to stay
 * in memory in between.
 *
 * Parameters have one gradient per block that uses them (program.h says why).
 *
 * Losses: the backward of a loss yields the loss too, so its forward is dropped. With the last one goes the forward pass of the last
 * block: whatever comes before the losses there (the last norm) runs at the beginning of the block's backward, chunk by chunk.
 */
#include <string.h>

#include "graph/internal.h"

typedef struct differentiation {
    sl_gradient rule; /* the interface for rules; its `graph` points back here */
    sl_graph *graph;
    sl_node node;          /* the forward node whose rule runs; a copy, since the array grows */
    sl_value *gradient_of; /* by forward value: its gradient so far; parameters: in the current block */
    bool *needed;          /* by forward value: depends on a parameter that is trained */
    int32_t *live;         /* by value that owns storage */
    int32_t n_forward_values;
} differentiation;

static sl_value storage_of(const sl_graph *graph, sl_value value)
{
    return graph->values[value].storage;
}

/* A fresh gradient of `of`, with its own bytes or (shared != SL_NO_VALUE) another value's. */
static sl_status new_gradient(differentiation *d, sl_value of, sl_value shared, sl_value *out)
{
    sl_graph *graph = d->graph;
    sl_graph_value source = graph->values[of];
    sl_value_class class = source.class == SL_VALUE_PARAMETER ? SL_VALUE_PARAMETER_GRADIENT
                           : source.class == SL_VALUE_CONTEXT ? SL_VALUE_CONTEXT_GRADIENT
                                                              : SL_VALUE_GRADIENT;
    const char *name;
    if (class == SL_VALUE_CONTEXT_GRADIENT && graph->sliced)
        source.type.dtype = SL_F32; /* many slices add into it */
    SL_TRY(sl_region_printf(graph->region, &name, "d.%s", source.name));
    SL_TRY(sl_graph_add_value(graph, name, class, &source.type, out));
    graph->values[*out].gradient_of = of;
    graph->values[*out].param = source.param;
    graph->values[*out].block = d->node.block;
    if (shared != SL_NO_VALUE)
        graph->values[*out].storage = storage_of(graph, shared);
    return SL_OK;
}

static void set_gradient(differentiation *d, sl_value of, sl_value gradient)
{
    d->gradient_of[of] = gradient;
    d->live[storage_of(d->graph, gradient)]++;
}

static void drop_gradient(differentiation *d, sl_value of)
{
    if (d->gradient_of[of] != SL_NO_VALUE)
        d->live[storage_of(d->graph, d->gradient_of[of])]--;
}

/* gradient of `of` = its former value + addend, in its own bytes. */
static sl_status emit_add(differentiation *d, sl_value of, sl_value addend)
{
    sl_node node = {.name = d->node.name,
                    .op = sl_op_of_role(SL_ROLE_ADD),
                    .n_in = 2,
                    .n_out = 1,
                    .block = d->node.block,
                    .phase = SL_PHASE_BACKWARD};
    sl_value sum;
    SL_TRY(new_gradient(d, of, SL_NO_VALUE, &sum));
    for (int i = 0; i < SL_MAX_IN; i++)
        node.in[i] = SL_NO_VALUE;
    for (int k = 0; k < SL_MAX_OUT; k++)
        node.out[k] = SL_NO_VALUE;
    node.in[0] = d->gradient_of[of];
    node.in[1] = addend;
    node.out[0] = sum;
    SL_TRY(sl_graph_add_node(d->graph, &node));
    drop_gradient(d, of);
    set_gradient(d, of, sum);
    return SL_OK;
}

static bool can_accumulate_into(const differentiation *d, sl_value of, const sl_op_def *def, int k)
{
    return (def->can_accumulate >> k & 1u) && d->live[storage_of(d->graph, d->gradient_of[of])] <= 1;
}

/* Chooses where output k of an emitted launch goes: first contribution, accumulation, or a temporary to be added. */
static sl_status choose_output(differentiation *d, const sl_op_def *def, int target, sl_node *node, int k,
                               bool *add_later)
{
    sl_value of;
    *add_later = false;
    node->out[k] = SL_NO_VALUE;
    if (target == SL_TARGET_NONE)
        return SL_OK;
    if (target == SL_TARGET_LOSS) {
        node->out[k] = d->node.out[0];
        return SL_OK;
    }
    SL_ASSERT(target >= 0 && target < d->node.n_in && d->node.in[target] != SL_NO_VALUE);
    of = d->node.in[target];
    if (d->graph->values[of].class == SL_VALUE_PARAMETER && !(def->can_accumulate >> k & 1u))
        return sl_fail(SL_E_INTERNAL, "%s: %s cannot accumulate the gradient of %s over chunks", d->node.name,
                       def->name, d->graph->values[of].name);
    if (d->gradient_of[of] == SL_NO_VALUE) {
        SL_TRY(new_gradient(d, of, SL_NO_VALUE, &node->out[k]));
        set_gradient(d, of, node->out[k]);
        return SL_OK;
    }
    if (can_accumulate_into(d, of, def, k)) {
        node->out[k] = d->gradient_of[of];
        node->accumulate |= 1u << k;
        return SL_OK;
    }
    *add_later = true;
    return new_gradient(d, of, SL_NO_VALUE, &node->out[k]);
}

static bool shares_bytes(const sl_graph *graph, sl_value a, sl_value b)
{
    return a != SL_NO_VALUE && b != SL_NO_VALUE && storage_of(graph, a) == storage_of(graph, b);
}

/* As the same rows and columns, too. */
static bool shares_columns(const sl_graph *graph, sl_value a, sl_value b)
{
    return shares_bytes(graph, a, b) && memcmp(&graph->values[a].type, &graph->values[b].type, sizeof(sl_type)) == 0;
}

static bool writes_bytes_of(const sl_graph *graph, const sl_node *node, sl_value value)
{
    for (int k = 0; k < node->n_out; k++)
        if (shares_bytes(graph, node->out[k], value))
            return true;
    return false;
}

static bool is_written_after(const sl_graph *graph, int32_t i, sl_value value)
{
    for (int32_t j = i + 1; j < graph->n_nodes; j++)
        if (writes_bytes_of(graph, &graph->nodes[j], value))
            return true;
    return false;
}

/* The launch that wrote the bytes of `value` last, if it is of this block's backward and wrote them as its first output. */
static sl_node *last_writer(const differentiation *d, sl_value value)
{
    const sl_graph *graph = d->graph;
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        sl_node *node = &graph->nodes[i];
        if (node->block != d->node.block || node->phase != SL_PHASE_BACKWARD)
            return NULL;
        if (writes_bytes_of(graph, node, value))
            return shares_columns(graph, node->out[0], value) ? node : NULL;
    }
    return NULL;
}

/* Leaves the gradient of the bias `target` to the launch that wrote `dy`; false: it cannot. */
static sl_status sum_where_written(differentiation *d, sl_value dy, int target, bool *done)
{
    sl_node *writer = last_writer(d, dy);
    const sl_op_def *def = writer ? sl_op(writer->op) : NULL;
    bool add_later;
    *done = def && def->sums_after && writer->out[def->sums_after] == SL_NO_VALUE &&
            d->gradient_of[d->node.in[target]] == SL_NO_VALUE;
    return *done ? choose_output(d, def, target, writer, def->sums_after, &add_later) : SL_OK;
}

/* `node`, about to be appended, adds to bytes whose columns a bias_grad of this block has just summed: it computes the sums itself,
 * and bias_grad is removed. Not if another node has written these bytes or that gradient since. */
static void sum_what_was_there(differentiation *d, sl_node *node, int sums)
{
    sl_graph *graph = d->graph;
    sl_value dx = node->out[0];
    for (int32_t i = graph->n_nodes - 1; i >= 0; i--) {
        const sl_node *other = &graph->nodes[i];
        if (other->block != node->block || other->phase != SL_PHASE_BACKWARD)
            return;
        if (sl_op(other->op)->role == SL_ROLE_COLUMN_SUMS && shares_columns(graph, other->in[0], dx)) {
            if (is_written_after(graph, i, other->out[0]))
                return;
            node->out[sums] = other->out[0];
            node->accumulate |= (other->accumulate & 1u) << sums;
            memmove(&graph->nodes[i], &graph->nodes[i + 1], (size_t) (--graph->n_nodes - i) * sizeof *graph->nodes);
            return;
        }
        if (writes_bytes_of(graph, other, dx))
            return;
    }
}

static sl_status emit(sl_gradient *gradient, sl_op_id op, const sl_attrs *attrs, const sl_value *in, int n_in,
                      const int *targets, int n_out)
{
    differentiation *d = gradient->graph;
    const sl_op_def *def = sl_op(op);
    bool add_later[SL_MAX_OUT] = {0};
    sl_node node = {.name = d->node.name,
                    .op = op,
                    .n_in = def->n_in,
                    .n_out = def->n_out,
                    .constants = d->node.constants,
                    .block = d->node.block,
                    .phase = SL_PHASE_BACKWARD};
    SL_ASSERT(n_in <= def->n_in && n_out <= def->n_out);
    if (def->role == SL_ROLE_COLUMN_SUMS) {
        bool done;
        SL_TRY(sum_where_written(d, in[0], targets[0], &done));
        if (done)
            return SL_OK;
    }
    if (attrs)
        node.attrs = *attrs;
    for (int i = 0; i < SL_MAX_IN; i++)
        node.in[i] = i < n_in ? in[i] : SL_NO_VALUE;
    for (int k = 0; k < SL_MAX_OUT; k++)
        node.out[k] = SL_NO_VALUE;
    for (int k = 0; k < n_out; k++)
        SL_TRY(choose_output(d, def, targets[k], &node, k, &add_later[k]));
    if (def->sums_before && (node.accumulate & 1u))
        sum_what_was_there(d, &node, def->sums_before);
    SL_TRY(sl_graph_add_node(d->graph, &node));
    for (int k = 0; k < n_out; k++)
        if (add_later[k])
            SL_TRY(emit_add(d, d->node.in[targets[k]], node.out[k]));
    return SL_OK;
}

static sl_status pass(sl_gradient *gradient, int i, sl_value passed)
{
    differentiation *d = gradient->graph;
    sl_value of = d->node.in[i], fresh;
    if (d->graph->values[of].class == SL_VALUE_PARAMETER)
        return sl_fail(SL_E_INTERNAL, "%s: the gradient of parameter %s cannot be handed on, only added to",
                       d->node.name, d->graph->values[of].name);
    SL_TRY(new_gradient(d, of, passed, &fresh)); /* in the input's shape, which may be another */
    if (d->gradient_of[of] != SL_NO_VALUE)
        return emit_add(d, of, fresh);
    set_gradient(d, of, fresh);
    return SL_OK;
}

/* ---- walking ---- */

static void find_needed(differentiation *d)
{
    sl_graph *graph = d->graph;
    for (sl_value v = 0; v < d->n_forward_values; v++)
        d->needed[v] = graph->values[v].class == SL_VALUE_PARAMETER && !graph->params[graph->values[v].param].frozen;
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const sl_node *node = &graph->nodes[i];
        bool needed = false;
        for (int k = 0; k < node->n_in; k++)
            needed |= node->in[k] != SL_NO_VALUE && d->needed[node->in[k]];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != SL_NO_VALUE)
                d->needed[node->out[k]] = needed && sl_op(node->op)->gradient;
    }
}

static sl_status differentiate_node(differentiation *d, const sl_node *node, bool is_loss)
{
    sl_type in_type[SL_MAX_IN] = {0}, out_type[SL_MAX_OUT] = {0};
    sl_value d_out[SL_MAX_OUT];
    bool need[SL_MAX_IN] = {0}, reached = is_loss;
    d->node = *node;
    for (int i = 0; i < node->n_in; i++)
        if (node->in[i] != SL_NO_VALUE) {
            in_type[i] = d->graph->values[node->in[i]].type;
            need[i] = d->needed[node->in[i]];
        }
    for (int k = 0; k < SL_MAX_OUT; k++) {
        sl_value out = k < node->n_out ? node->out[k] : SL_NO_VALUE;
        d_out[k] = out == SL_NO_VALUE ? SL_NO_VALUE : d->gradient_of[out];
        if (out != SL_NO_VALUE)
            out_type[k] = d->graph->values[out].type;
        reached |= d_out[k] != SL_NO_VALUE;
    }
    if (!reached || !sl_op(node->op)->gradient)
        return SL_OK;
    d->rule.attrs = &d->node.attrs;
    d->rule.in_type = in_type;
    d->rule.out_type = out_type;
    d->rule.in = d->node.in;
    d->rule.out = d->node.out;
    d->rule.d_out = d_out;
    d->rule.need = need;
    SL_TRY(sl_op(node->op)->gradient(&d->rule));
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != SL_NO_VALUE)
            drop_gradient(d, node->out[k]);
    return SL_OK;
}

/* Moves the losses out of the forward, in order. */
static void take_losses(sl_graph *graph, sl_node losses[SL_MAX_LOSSES])
{
    int32_t kept = 0, taken = 0;
    for (int32_t i = 0; i < graph->n_nodes; i++) {
        const sl_node node = graph->nodes[i];
        graph->blocks[node.block].n_forward -= sl_op(node.op)->yields_loss;
        if (sl_op(node.op)->yields_loss)
            losses[taken++] = node;
        else
            graph->nodes[kept++] = node;
    }
    graph->n_nodes = kept;
    for (int32_t b = 1; b < graph->n_blocks; b++)
        graph->blocks[b].first_forward = graph->blocks[b - 1].first_forward + graph->blocks[b - 1].n_forward;
}

static sl_status differentiate_losses(differentiation *d, const sl_node losses[SL_MAX_LOSSES], int32_t block)
{
    for (int32_t i = d->graph->n_losses - 1; i >= 0; i--) {
        int32_t before = d->graph->n_nodes;
        if (losses[i].block != block)
            continue;
        SL_TRY(differentiate_node(d, &losses[i], true));
        if (d->graph->n_nodes == before)
            return sl_fail(SL_E_USAGE, "%s depends on no parameter that is trained", losses[i].name);
    }
    return SL_OK;
}

static sl_status differentiate_blocks(differentiation *d)
{
    sl_graph *graph = d->graph;
    sl_node losses[SL_MAX_LOSSES];
    take_losses(graph, losses);
    int32_t n_forward = graph->n_nodes;
    for (int32_t b = graph->n_blocks - 1; b >= 0; b--) {
        sl_block *block = &graph->blocks[b];
        bool has_loss = b == graph->n_blocks - 1;
        block->first_backward = has_loss ? block->first_forward : graph->n_nodes;
        SL_TRY(differentiate_losses(d, losses, b));
        for (int32_t i = block->first_forward + block->n_forward - 1; i >= block->first_forward; i--) {
            sl_node node = graph->nodes[i];
            SL_TRY(differentiate_node(d, &node, false));
        }
        block->n_backward = graph->n_nodes - block->first_backward;
        if (has_loss) {
            for (int32_t i = block->first_forward; i < n_forward; i++)
                graph->nodes[i].phase = SL_PHASE_BACKWARD;
            block->n_forward = 0;
        }
        for (sl_value v = 0; v < d->n_forward_values; v++) /* the next block's use is another gradient */
            if (graph->values[v].class == SL_VALUE_PARAMETER)
                d->gradient_of[v] = SL_NO_VALUE;
    }
    return SL_OK;
}

sl_status sl_graph_differentiate(sl_graph *graph)
{
    differentiation d = {.graph = graph};
    sl_status status;
    int32_t capacity = graph->n_nodes * (SL_MAX_IN + SL_MAX_OUT) * 3; /* more values than rules can make */
    SL_TRY(sl_graph_input(graph, SL_INPUT_STEP, &d.rule.step));
    d.n_forward_values = graph->n_values;
    SL_TRY(sl_alloc(&d.gradient_of, d.n_forward_values, sizeof *d.gradient_of));
    SL_TRY_GOTO(sl_alloc(&d.needed, d.n_forward_values, sizeof *d.needed), free_gradients);
    SL_TRY_GOTO(sl_alloc(&d.live, d.n_forward_values + capacity, sizeof *d.live), free_needed);
    for (sl_value v = 0; v < d.n_forward_values; v++)
        d.gradient_of[v] = SL_NO_VALUE;
    d.rule.graph = &d;
    d.rule.emit = emit;
    d.rule.pass = pass;
    find_needed(&d);
    status = differentiate_blocks(&d);
    sl_free(d.live);
free_needed:
    sl_free(d.needed);
free_gradients:
    sl_free(d.gradient_of);
    return status;
}
