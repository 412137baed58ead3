/*
 * The end of a step, group by group. A group is complete behind the last backward task (of the last round's last chunk) that
 * writes its gradient, reads its parameters, or reads what a forward task made of them: from there on it may be updated, while
 * the backward of earlier layers goes on.
 *
 *     not gated:  ... last gradient, [add the gradients of other blocks], [sums of squares], update, earlier layers ...
 *     gated:      ... last gradient, [add], sums of squares, earlier layers ..., gate, all updates
 *
 * After the gate the updates run from the first layer to the last: the gradients that were finished last are likeliest to
 * be still available.
 */
#include <string.h>

#include "program/internal.h"

static void later(int32_t *completion, int32_t node)
{
    *completion = SL_MAX(*completion, node);
}

/* Node `reader` reads the parameter, if `value` is one or a view of one. */
static void read_by(builder *b, sl_value value, int32_t reader)
{
    const sl_graph_value *root = &b->graph[0]->values[b->graph[0]->values[value].storage];
    if (root->class == SL_VALUE_PARAMETER)
        later(&b->completion[b->program->params[root->param].group_index], reader);
}

/* Recomputing a forward task reads its parameters again, so its outputs' last readers count as readers of the group. */
void sl_program_find_completions(builder *b)
{
    const sl_graph *graph = b->graph[0];
    for (int32_t g = 0; g < b->program->n_groups; g++)
        b->completion[g] = -1;
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const sl_node *node = &graph->nodes[i];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != SL_NO_VALUE && graph->values[node->out[k]].class == SL_VALUE_PARAMETER_GRADIENT)
                later(&b->completion[b->program->params[graph->values[node->out[k]].param].group_index], i);
        for (int k = 0; k < node->n_in; k++) {
            int32_t maker = node->in[k] == SL_NO_VALUE ? -1 : b->maker[node->in[k]];
            if (node->in[k] != SL_NO_VALUE)
                read_by(b, node->in[k], i);
            for (int j = 0; maker >= 0 && j < graph->nodes[maker].n_in; j++)
                if (graph->nodes[maker].in[j] != SL_NO_VALUE)
                    read_by(b, graph->nodes[maker].in[j], i);
        }
    }
}

/* ---- tasks ---- */

static sl_use use_of(int32_t object, sl_dtype dtype, int64_t first, int64_t count)
{
    return (sl_use){object, (size_t) first * sl_dtype_bytes(dtype), sl_type_1d(dtype, count)};
}

static sl_task new_task(sl_op_id op, const char *name)
{
    sl_task task;
    memset(&task, 0, sizeof task);
    task.op = op;
    task.name = name;
    task.phase = SL_PHASE_OPTIMIZER;
    task.block = task.chunk = task.round = -1;
    task.host_allowed = true;
    for (int i = 0; i < SL_MAX_IN; i++)
        task.in[i].object = -1;
    for (int k = 0; k < SL_MAX_OUT; k++)
        task.out[k].object = -1;
    return task;
}

static sl_status add(builder *b, sl_task *task)
{
    SL_TRY(sl_program_signature(b, task, &task->signature));
    return sl_program_add_task(b, task);
}

/* The gradients that other blocks (the head, for tied weights) made of a group's parameters go into the group's. */
static sl_status add_other_blocks(builder *b, int32_t group)
{
    const sl_program *p = b->program;
    for (sl_value v = 0; v < b->n_values; v++) {
        const sl_graph_value *value = &b->graph[0]->values[v];
        if (value->class != SL_VALUE_PARAMETER_GRADIENT || b->use_gradient[v] < 0 ||
            p->params[value->param].group_index != group)
            continue;
        const sl_param *param = &p->params[value->param];
        int64_t count = sl_type_count(&param->type);
        const sl_op_id op = sl_op_of_role(SL_ROLE_ACCUMULATE);
        sl_task task = new_task(op, value->name);
        task.accumulate = 1;
        task.attrs = sl_op_attrs(op, sl_op(op)->role_attrs);
        task.in[0] = use_of(b->use_gradient[v], b->dtype, 0, count);
        task.out[0] = use_of(b->gradient[group], b->dtype, sl_program_first_element(b, value->param), count);
        SL_TRY(add(b, &task));
    }
    return SL_OK;
}

static sl_status add_sum_squares(builder *b, int32_t r)
{
    const group_run *run = &b->runs[r];
    sl_task task = new_task(sl_op_of_role(SL_ROLE_SUM_SQUARES), b->program->groups[run->group].name);
    task.in[0] = use_of(b->gradient[run->group], b->dtype, run->first, run->count);
    task.out[0] = use_of(b->partials_object, SL_F32, r, 1);
    return add(b, &task);
}

/* The runs of a group from r on that one launch updates. */
static int launch_runs(const builder *b, int32_t r)
{
    const group_run *run = &b->runs[r];
    int n = 1;
    if (sl_optimizer_of(run->optimizer)->granularity != SL_UPDATE_TENSOR)
        return 1;
    while (n < SL_MAX_UPDATE_TENSORS && r + n < b->n_runs && run[n].group == run->group &&
           run[n].optimizer == run->optimizer &&
           run[n].first == run->first + sl_update_next(b->dtype, run[n - 1].first + run[n - 1].count - run->first))
        n++;
    return n;
}

/* What the update of a launch's runs needs to know. */
static sl_update describe_update(const builder *b, int32_t r, int runs, sl_update_tensor *tensors)
{
    const sl_program *p = b->program;
    const group_run *run = &b->runs[r];
    sl_update update = {.options = p->config.optimizer_options[run->optimizer],
                        .weight_decay = p->config.weight_decay,
                        .decayed = run->decayed,
                        .stream = (uint64_t) r,
                        .stochastic = sl_policy_of(p->config.precision)->stochastic,
                        .corrections = p->correction[run->optimizer],
                        .tensors = tensors};
    for (int i = 0; i < runs; i++)
        for (int k = 0; k < run[i].tensors; k++)
            tensors[update.n_tensors++] = (sl_update_tensor){run[i].rows, run[i].columns, run[i].decayed > 0};
    return update;
}

/* Appends an update from run r on; *next is the first run that it does not cover. */
static sl_status add_update(builder *b, int32_t r, int32_t *next)
{
    const sl_program *p = b->program;
    const group_run *run = &b->runs[r];
    const sl_policy *policy = sl_policy_of(p->config.precision);
    const sl_optimizer_def *optimizer = sl_optimizer_of(run->optimizer);
    sl_update_tensor tensors[SL_MAX_UPDATE_TENSORS];
    const int runs = launch_runs(b, r);
    const int64_t count = run[runs - 1].first + run[runs - 1].count - run->first;
    const int64_t inside = run->first - sl_program_first_element(b, run->param);
    const sl_update update = describe_update(b, r, runs, tensors);
    sl_task task = new_task(optimizer->op, p->groups[run->group].name);
    sl_use *out = task.out;
    task.host_allowed = !optimizer->device_only;
    task.in[0] = use_of(b->gradient[run->group], b->dtype, run->first, count);
    task.in[1] = use_of(p->step_object, SL_I32, 0, SL_STEP_WORDS);
    if (p->config.gated)
        task.in[2] = use_of(p->gate_object, SL_F32, 0, 4);
    *out++ = use_of(p->param_object[run->group], b->dtype, run->first, count);
    for (int k = 0; k < optimizer->n_states; k++) {
        const int slot = sl_optimizer_slot(optimizer, k);
        const sl_type before = sl_state_type(slot, policy->moments, p->state_first[slot][run->param] + inside);
        *out++ = (sl_use){p->state_object[slot][run->group], sl_type_bytes(&before),
                          sl_state_type(slot, policy->moments, count)};
    }
    if (policy->master)
        *out = use_of(p->master_object[run->group], SL_F32, run->first, count);
    optimizer->set_attrs(&update, &task.attrs);
    *next = r + runs;
    return add(b, &task);
}

/* All updates of a group; -1: of all groups. */
static sl_status add_updates(builder *b, int32_t group)
{
    for (int32_t r = 0; r < b->n_runs;)
        if (group >= 0 && b->runs[r].group != group)
            r++;
        else
            SL_TRY(add_update(b, r, &r));
    return SL_OK;
}

sl_status sl_program_complete_groups(builder *b, int32_t node)
{
    for (int32_t g = 0; g < b->program->n_groups; g++) {
        if (b->completion[g] != node)
            continue;
        SL_TRY(add_other_blocks(b, g));
        for (int32_t r = 0; r < b->n_runs; r++)
            if (b->runs[r].group == g && has_norm(&b->program->config))
                SL_TRY(add_sum_squares(b, r));
        if (!b->program->config.gated)
            SL_TRY(add_updates(b, g));
    }
    return SL_OK;
}

sl_status sl_program_finish_updates(builder *b)
{
    sl_program *p = b->program;
    if (!has_norm(&p->config))
        return SL_OK;
    sl_task gate = new_task(sl_op_of_role(SL_ROLE_GRAD_GATE), "gradient norm");
    gate.host_allowed = false;
    gate.in[0] = use_of(b->partials_object, SL_F32, 0, b->n_runs);
    gate.in[1] = use_of(p->step_object, SL_I32, 0, SL_STEP_WORDS);
    gate.out[0] = use_of(p->gate_object, SL_F32, 0, 4);
    SL_TRY(add(b, &gate));
    return p->config.gated ? add_updates(b, -1) : SL_OK;
}
