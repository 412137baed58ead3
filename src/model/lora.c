/*
 * The forward pass of adapters. A matrix W of ours may hold several modules of a file one below the other (q, k and v), each with
 * adapters of its own. Their A lie one below the other too, and their B on the diagonal of one matrix, so that any number of modules
 * takes two small multiplies:
 *
 *     u = scale x [Aq; Ak; Av]^T   [n, 3 rank]          y = x W^T + u D^T          D = | Bq       |
 *                                                                                      |    Bk    |   [out, 3 rank]
 *                                                                                      |       Bv |
 * One multiply by D writes what the adapters add, and the multiply by W takes it as its residual: that one is limited by arithmetic and
 * reads it for nothing. (A multiply for each module writes matrices that have to be joined, and adding to x W^T afterwards reads and
 * writes it once more.) Rows of modules without an adapter are zero. D is put together anew for each chunk: it has a thousandth of W's
 * elements. Adding D A to W instead would round away what an adapter learns in bf16.
 */
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/internal.h"
#include "ops/dropout.h"
#include "ops/matmul.h"
#include "ops/scale.h"
#include "ops/slice.h"

/* Streams of dropout noise from here on are the adapters'; families count theirs from 0. */
enum { FIRST_STREAM = 1 << 30, NAME_BYTES = 256 };
static const char file_prefix[] = "base_model.model.", file_end[] = ".lora_A.weight";

float sl_lora_scale(const sl_lora *lora)
{
    const double rank = (double) lora->rank;
    return (float) (lora->alpha / (lora->rank_stabilized ? sqrt(rank) : rank));
}

/* Is `name` the end of `module`, at a dot? */
static bool names_module(const char *name, const char *module)
{
    size_t length = strlen(module), tail = strlen(name);
    return length >= tail && strcmp(module + length - tail, name) == 0 &&
           (length == tail || module[length - tail - 1] == '.');
}

bool sl_lora_is_target(const sl_lora *lora, const char *module)
{
    char item[SL_LORA_TARGETS];
    for (const char *list = lora->targets; sl_next_item(&list, item, sizeof item);)
        if (strcmp(item, SL_LORA_ALL) == 0 || names_module(item, module))
            return true;
    return false;
}

/* "model.layers.3.mlp.up_proj" of the part "model.layers.3.mlp.up_proj.weight". */
static void module_of(const sl_param_part *part, char module[NAME_BYTES])
{
    const char *end = strrchr(part->name, '.');
    const bool weight = end && strcmp(end, ".weight") == 0;
    snprintf(module, NAME_BYTES, "%.*s", weight ? (int) (end - part->name) : NAME_BYTES - 1, part->name);
}

static const char *last_name(const char *module)
{
    const char *dot = strrchr(module, '.');
    return dot ? dot + 1 : module;
}

/* ---- the forward pass ---- */

/* The modules of one weight that get adapters. */
typedef struct targets {
    sl_param weight; /* a copy: the graph's array grows */
    int part[SL_MAX_PARTS];
    int count;
} targets;

static targets targets_of(const sl_forward *f, sl_value weight)
{
    const sl_graph_value *value = &f->graph->values[weight];
    targets t = {.count = 0};
    char module[NAME_BYTES];
    if (value->class != SL_VALUE_PARAMETER)
        return t;
    t.weight = f->graph->params[value->param];
    for (int i = 0; i < t.weight.n_parts; i++) {
        module_of(&t.weight.parts[i], module);
        if (sl_lora_is_target(&f->model->lora, module))
            t.part[t.count++] = i;
    }
    return t;
}

/* The whole names of a module's tensors in an adapter's file. */
static sl_param_part file_part(const targets *t, int i, const char *which, int64_t row, int64_t rows,
                               char name[NAME_BYTES + 64])
{
    char module[NAME_BYTES];
    module_of(&t->weight.parts[t->part[i]], module);
    snprintf(name, NAME_BYTES + 64, "%s%s.%s.weight", file_prefix, module, which);
    return (sl_param_part){.name = name, .row = row, .rows = rows};
}

/* sl_forward_parameter puts a family's prefix in front of the names in files; these have their own. */
static sl_value parameter(sl_forward *f, sl_forward_param *param)
{
    char prefix[sizeof f->prefix];
    memcpy(prefix, f->prefix, sizeof prefix);
    f->prefix[0] = 0;
    param->decay = param->adapter = true;
    sl_value value = sl_forward_parameter(f, param);
    memcpy(f->prefix, prefix, sizeof prefix);
    return value;
}

/* Uniform between -1 and 1 over the root of `in`, as PEFT begins. */
static sl_value declare_a(sl_forward *f, const targets *t, const char *name)
{
    char own[NAME_BYTES], names[SL_MAX_PARTS][NAME_BYTES + 64];
    const int64_t rank = f->model->lora.rank, in = t->weight.type.dim[1];
    sl_forward_param param = {.name = own,
                              .rows = t->count * rank,
                              .columns = in,
                              .init = SL_INIT_UNIFORM,
                              .std = (float) (1 / sqrt(3.0 * (double) in)),
                              .n_parts = t->count};
    snprintf(own, sizeof own, "%s.lora_a", name);
    for (int i = 0; i < t->count; i++)
        param.parts[i] = file_part(t, i, "lora_A", i * rank, rank, names[i]);
    return parameter(f, &param);
}

static sl_value declare_b(sl_forward *f, const targets *t, int i, const char *name)
{
    char own[NAME_BYTES], file_name[NAME_BYTES + 64], module[NAME_BYTES];
    const sl_param_part *of = &t->weight.parts[t->part[i]];
    sl_forward_param param = {
        .name = own, .rows = of->rows, .columns = f->model->lora.rank, .init = SL_INIT_ZEROS, .n_parts = 1};
    module_of(of, module);
    snprintf(own, sizeof own, "%s.%s.lora_b", name, last_name(module));
    param.parts[0] = file_part(t, i, "lora_B", 0, of->rows, file_name);
    param.parts[0].pair_rows = of->pair_rows;
    return parameter(f, &param);
}

/* D of the drawing above. */
static sl_value diagonal(sl_forward *f, const targets *t, const char *name)
{
    char node[NAME_BYTES];
    const int64_t rank = f->model->lora.rank;
    sl_value sum = SL_NO_VALUE, b[SL_MAX_PARTS];
    for (int i = 0; i < t->count; i++)
        b[i] = declare_b(f, t, i, name);
    if (t->weight.n_parts == 1)
        return b[0];
    for (int i = 0; i < t->count; i++) {
        sl_attrs attrs = {.raw = {0}};
        *sl_slice_set(&attrs) = (struct sl_slice_attrs){.first_row = t->weight.parts[t->part[i]].row,
                                                        .first_column = i * rank,
                                                        .rows = t->weight.type.dim[0],
                                                        .columns = t->count * rank};
        snprintf(node, sizeof node, "%s.lora_place_%d", name, i);
        sl_value placed = sl_forward_op(f, SL_OP_SLICE_BWD, node, &attrs, &b[i], 1, NULL);
        snprintf(node, sizeof node, "%s.lora_join_%d", name, i);
        sum = i ? sl_forward_add(f, node, sum, placed) : placed;
    }
    return sum;
}

static sl_value drop(sl_forward *f, const char *name, sl_value x)
{
    char node[NAME_BYTES];
    sl_attrs attrs = {.raw = {0}};
    snprintf(node, sizeof node, "%s.lora_dropout", name);
    sl_dropout_set(&attrs)->probability = f->model->lora.dropout;
    sl_dropout_set(&attrs)->stream = FIRST_STREAM + f->adapters;
    return sl_forward_op(f, SL_OP_DROPOUT, node, &attrs, (const sl_value[]){x, sl_forward_input(f, SL_INPUT_STEP)}, 2,
                         NULL);
}

/* scale x A^T: the scale is applied where there is least to multiply. */
static sl_value project(sl_forward *f, const targets *t, const char *name, sl_value x)
{
    char node[NAME_BYTES];
    sl_attrs multiply = {.raw = {0}}, scale = {.raw = {0}};
    sl_matmul_set(&multiply)->trans_b = 1;
    sl_scale_set(&scale)->value = sl_lora_scale(&f->model->lora);
    sl_value a = declare_a(f, t, name);
    if (f->graph->training && f->model->lora.dropout > 0)
        x = drop(f, name, x);
    snprintf(node, sizeof node, "%s.lora_u", name);
    sl_value u = sl_forward_op(f, SL_OP_MATMUL, node, &multiply, (const sl_value[]){x, a}, 2, NULL);
    snprintf(node, sizeof node, "%s.lora_scale", name);
    return sl_scale_attrs(&scale)->value == 1 ? u : sl_forward_op(f, SL_OP_SCALE, node, &scale, &u, 1, NULL);
}

sl_value sl_forward_lora(sl_forward *f, const char *name, sl_value x, sl_value weight)
{
    char node[NAME_BYTES];
    sl_attrs attrs = {.raw = {0}};
    if (f->status != SL_OK || !f->model->lora.rank)
        return SL_NO_VALUE;
    const targets t = targets_of(f, weight);
    if (!t.count)
        return SL_NO_VALUE;
    sl_value u = project(f, &t, name, x), d = diagonal(f, &t, name);
    f->adapters++;
    sl_matmul_set(&attrs)->trans_b = 1;
    snprintf(node, sizeof node, "%s.lora", name);
    return sl_forward_op(f, SL_OP_MATMUL, node, &attrs, (const sl_value[]){u, d}, 2, NULL);
}

/* ---- which modules there are ---- */

/* The module whose A the part is; false: it is another tensor. */
static bool adapted_module(const sl_param_part *part, char module[NAME_BYTES])
{
    const size_t length = strlen(part->name), before = sizeof file_prefix - 1, after = sizeof file_end - 1;
    if (length <= before + after || strcmp(part->name + length - after, file_end) != 0)
        return false;
    snprintf(module, NAME_BYTES, "%.*s", (int) (length - before - after), part->name + before);
    return true;
}

/* Adds a name to "a, b, c" unless it is there. */
static void add_name(sl_text *list, const char *name)
{
    char item[NAME_BYTES];
    for (const char *at = list->data; sl_next_item(&at, item, sizeof item);)
        if (strcmp(item, name) == 0)
            return;
    sl_text_printf(list, "%s%s", list->length ? ", " : "", name);
}

static bool is_met(const sl_graph *graph, const char *target)
{
    char module[NAME_BYTES];
    for (int32_t p = 0; p < graph->n_params; p++)
        for (int i = 0; i < graph->params[p].n_parts && graph->params[p].adapter; i++)
            if (adapted_module(&graph->params[p].parts[i], module) &&
                (strcmp(target, SL_LORA_ALL) == 0 || names_module(target, module)))
                return true;
    return false;
}

static void list_linear(const sl_graph *graph, sl_text *list)
{
    char module[NAME_BYTES];
    for (int32_t n = 0; n < graph->n_nodes; n++) {
        const sl_value weight = graph->nodes[n].op == SL_OP_MATMUL ? graph->nodes[n].in[1] : SL_NO_VALUE;
        if (weight == SL_NO_VALUE || graph->values[weight].class != SL_VALUE_PARAMETER)
            continue;
        const sl_param *param = &graph->params[graph->values[weight].param];
        for (int i = 0; i < param->n_parts && !param->adapter; i++) {
            module_of(&param->parts[i], module);
            add_name(list, last_name(module));
        }
    }
}

static int64_t count_modules(const sl_graph *graph)
{
    char module[NAME_BYTES];
    int64_t count = 0;
    for (int32_t p = 0; p < graph->n_params; p++)
        for (int i = 0; i < graph->params[p].n_parts && graph->params[p].adapter; i++)
            count += adapted_module(&graph->params[p].parts[i], module);
    return count;
}

sl_status sl_lora_check_targets(const sl_lora *lora, const sl_graph *graph)
{
    char target[SL_LORA_TARGETS];
    if (!lora->rank)
        return SL_OK;
    for (const char *list = lora->targets; sl_next_item(&list, target, sizeof target);) {
        if (is_met(graph, target))
            continue;
        sl_text names = {0};
        list_linear(graph, &names);
        sl_status status =
            sl_fail(SL_E_USAGE,
                    "no linear layer of the model is called \"%s\", so no adapter can be put beside it: there are %s",
                    target, names.data ? names.data : "none");
        sl_text_free(&names);
        return status;
    }
    const int64_t count = count_modules(graph);
    if (lora->modules && lora->modules != count)
        return sl_fail(
            SL_E_UNSUPPORTED,
            "the adapter's target_modules lists %lld modules of some layers, but %lld of the model have these "
            "names: adapters have to be in all layers",
            (long long) lora->modules, (long long) count);
    return SL_OK;
}

void sl_lora_modules(const sl_param *params, int32_t n_params, sl_text *out)
{
    char module[NAME_BYTES];
    for (int32_t p = 0; p < n_params; p++)
        for (int i = 0; i < params[p].n_parts && params[p].adapter; i++)
            if (adapted_module(&params[p].parts[i], module))
                add_name(out, last_name(module));
}
