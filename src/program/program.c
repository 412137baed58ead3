/*
 * Building a program: chunks from the chunking, the chunk graph once per distinct length, then for every round, block and chunk
 * a copy of each node's prototype task with its objects filled in. Everything that is the same for all chunks of a node is
 * computed once, so a step of 30,000 tasks takes milliseconds.
 */
#include "program/program.h"

#include <stdio.h>
#include <string.h>

#include "program/internal.h"

const char *sl_object_class_name(sl_object_class class)
{
    static const char *const names[SL_CLASS_COUNT] = {"parameter", "gradient",  "optimizer", "activation", "context",
                                                      "hidden",    "workspace", "data",      "result"};
    return class >= 0 && class < SL_CLASS_COUNT ? names[class] : "?";
}

int64_t sl_chunk_tokens_default(int64_t seqlen, int64_t sequences, int64_t target)
{
    if (2 * seqlen > 3 * target) { /* slices of nearly equal length, a multiple of 64 */
        int64_t slices = SL_MAX(2, (seqlen + target / 2) / target);
        return SL_MIN(SL_ROUND_UP(SL_DIV_UP(seqlen, slices), 64), seqlen);
    }
    int64_t each = SL_MIN(SL_MAX(1, target / seqlen), sequences); /* sequences per chunk, spread evenly */
    int64_t chunks = SL_DIV_UP(sequences, each);
    return SL_DIV_UP(sequences, chunks) * seqlen;
}

int64_t sl_chunking_slices(const sl_chunking *c)
{
    return SL_DIV_UP(c->seqlen, SL_MIN(c->chunk_tokens, c->seqlen));
}

int64_t sl_chunking_chunks(const sl_chunking *c)
{
    return c->chunk_tokens < c->seqlen ? c->sequences * sl_chunking_slices(c)
                                       : SL_DIV_UP(c->sequences, c->chunk_tokens / c->seqlen);
}

int64_t sl_chunking_round(const sl_chunking *c, int64_t wanted)
{
    int64_t chunks = sl_chunking_chunks(c), slices = sl_chunking_slices(c);
    return wanted > 0 ? SL_MAX(SL_MIN(wanted, chunks) / slices * slices, slices) : chunks;
}

const char *sl_task_describe(const sl_program *program, int32_t task, char out[160])
{
    const sl_task *t = &program->tasks[task];
    if (t->chunk >= 0)
        snprintf(out, 160, "%s %s (%s) chunk %d", t->name, sl_phase_name(t->phase), sl_op(t->op)->name, t->chunk);
    else
        snprintf(out, 160, "%s %s (%s)", t->name, sl_phase_name(t->phase), sl_op(t->op)->name);
    return out;
}

/* ---- chunks ---- */

static sl_status check_config(const sl_program_config *config)
{
    const sl_chunking *c = &config->chunking;
    long long seqlen = c->seqlen, sequences = c->sequences, tokens = c->chunk_tokens;
    int64_t total;
    if (seqlen < 1 || sequences < 1 || tokens < 1)
        return sl_fail(SL_E_USAGE,
                       "sequence length %lld, %lld sequences and chunks of %lld tokens must all be at least 1", seqlen,
                       sequences, tokens);
    if (__builtin_mul_overflow(c->seqlen, c->sequences, &total) || total > INT64_C(1) << 40 || c->seqlen > INT32_MAX)
        return sl_fail(SL_E_USAGE, "%lld sequences of %lld tokens are more than a step can hold", sequences, seqlen);
    if (tokens > seqlen && tokens % seqlen)
        return sl_fail(SL_E_USAGE,
                       "a chunk of %lld tokens is neither a multiple of the sequence length %lld nor less than it",
                       tokens, seqlen);
    if (total / tokens > 1 << 22)
        return sl_fail(SL_E_USAGE, "%lld tokens in chunks of %lld are too many tasks; use larger chunks",
                       (long long) total, tokens);
    return SL_OK;
}

static sl_status cut_chunks(builder *b)
{
    sl_program *p = b->program;
    const sl_chunking *c = &p->config.chunking;
    int64_t each = SL_MAX(1, c->chunk_tokens / c->seqlen); /* sequences per chunk */
    b->sliced = c->chunk_tokens < c->seqlen;
    b->slices = sl_chunking_slices(c);
    p->n_chunks = (int32_t) sl_chunking_chunks(c);
    b->chunks_per_round = sl_chunking_round(c, p->config.chunks_per_round);
    p->config.chunks_per_round = b->chunks_per_round;
    p->n_rounds = (int32_t) SL_DIV_UP(p->n_chunks, b->chunks_per_round);
    p->tokens = c->seqlen * c->sequences;
    SL_TRY(sl_region_alloc(p->region, &p->chunks, p->n_chunks, sizeof *p->chunks));
    SL_TRY(sl_region_alloc(p->region, &b->variant, p->n_chunks, sizeof *b->variant));
    for (int32_t i = 0; i < p->n_chunks; i++) {
        sl_chunk *chunk = &p->chunks[i];
        chunk->loss_slot = i;
        if (b->sliced) {
            chunk->first_sequence = i / b->slices;
            chunk->n_sequences = 1;
            chunk->slice_offset = i % b->slices * c->chunk_tokens;
            chunk->tokens = SL_MIN(c->chunk_tokens, c->seqlen - chunk->slice_offset);
        } else {
            chunk->first_sequence = i * each;
            chunk->n_sequences = SL_MIN(each, c->sequences - chunk->first_sequence);
            chunk->tokens = chunk->n_sequences * c->seqlen;
        }
        b->variant[i] = chunk->tokens != p->chunks[0].tokens;
    }
    return SL_OK;
}

/* ---- working memory ---- */

static void find_makers(builder *b)
{
    for (int32_t v = 0; v < b->n_values; v++)
        b->maker[v] = -1;
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const sl_node *node = &b->graph[0]->nodes[i];
        for (int k = 0; k < node->n_out; k++)
            if (node->out[k] != SL_NO_VALUE && b->graph[0]->values[node->out[k]].gradient_of == SL_NO_VALUE)
                b->maker[node->out[k]] = i;
    }
    for (int32_t v = 0; v < b->n_values; v++) {
        const sl_graph_value *value = &b->graph[0]->values[v];
        if (value->is_view)
            b->maker[v] = b->maker[value->storage];
    }
}

static void fill_prototype(const sl_graph *graph, const sl_graph *names, int32_t i, sl_task *task)
{
    const sl_node *node = &graph->nodes[i];
    task->op = node->op;
    task->accumulate = node->accumulate;
    task->attrs = node->attrs;
    task->constants = node->constants;
    task->name = names->nodes[i].name;
    task->phase = node->phase;
    task->block = node->block;
    for (int k = 0; k < SL_MAX_IN; k++) {
        task->in[k].object = -1;
        if (node->in[k] != SL_NO_VALUE)
            task->in[k].type = graph->values[node->in[k]].type;
    }
    for (int k = 0; k < SL_MAX_OUT; k++) {
        task->out[k].object = -1;
        if (node->out[k] != SL_NO_VALUE)
            task->out[k].type = graph->values[node->out[k]].type;
    }
}

static sl_status allocate_tables(builder *b)
{
    sl_program *p = b->program;
    int64_t slots = b->chunks_per_round * b->n_values, signature_slots = SL_MAX(VARIANTS, b->slices) * b->n_nodes * 2;
    int64_t objects = 16 + 5 * (int64_t) p->n_groups + b->n_values + p->n_chunks * (int64_t) b->n_values;
    int64_t tasks = p->n_chunks * (int64_t) b->n_nodes + 2 * SL_MAX_PARTS * p->n_params + b->n_values + 16;
    if (objects > INT32_MAX / 2 || tasks > INT32_MAX / 2)
        return sl_fail(SL_E_USAGE, "the step has %lld tasks, more than can be numbered; use larger chunks",
                       (long long) tasks);
    b->capacity_objects = (int32_t) objects;
    b->capacity_tasks = (int32_t) tasks;
    SL_TRY(sl_region_alloc(p->region, &p->objects, objects, sizeof *p->objects));
    SL_TRY(sl_region_alloc(p->region, &p->tasks, tasks, sizeof *p->tasks));
    SL_TRY(sl_alloc(&b->slots, slots, sizeof *b->slots));
    SL_TRY(sl_alloc(&b->gradient, p->n_groups, sizeof *b->gradient));
    SL_TRY(sl_alloc(&b->completion, p->n_groups, sizeof *b->completion));
    SL_TRY(sl_alloc(&b->use_gradient, b->n_values, sizeof *b->use_gradient));
    SL_TRY(sl_alloc(&b->kept, b->n_values, sizeof *b->kept));
    SL_TRY(sl_alloc(&b->maker, b->n_values, sizeof *b->maker));
    SL_TRY(sl_alloc(&b->written, b->n_values, sizeof *b->written));
    SL_TRY(sl_alloc(&b->owner_block, p->n_params, sizeof *b->owner_block));
    SL_TRY(sl_alloc(&b->signature_slots, signature_slots, sizeof *b->signature_slots));
    for (int v = 0; v < VARIANTS; v++) {
        if (!b->graph[v])
            continue;
        SL_TRY(sl_alloc(&b->prototype[v], b->n_nodes, sizeof *b->prototype[v]));
        for (int32_t i = 0; i < b->n_nodes; i++)
            fill_prototype(b->graph[v], b->graph[0], i, &b->prototype[v][i]);
    }
    memset(b->gradient, -1, (size_t) p->n_groups * sizeof *b->gradient);
    memset(b->use_gradient, -1, (size_t) b->n_values * sizeof *b->use_gradient);
    memset(b->kept, -1, (size_t) b->n_values * sizeof *b->kept);
    return SL_OK;
}

static void free_tables(builder *b)
{
    void *tables[] = {b->slots,        b->gradient,    b->completion,  b->use_gradient,    b->kept,
                      b->maker,        b->written,     b->owner_block, b->signature_slots, b->signature_table,
                      b->prototype[0], b->prototype[1]};
    for (int64_t i = 0; i < SL_COUNT(tables); i++)
        sl_free(tables[i]);
}

static void find_home_blocks(builder *b)
{
    for (int32_t param = 0; param < b->program->n_params; param++)
        b->owner_block[param] = INT32_MAX;
    for (int32_t v = 0; v < b->n_values; v++) {
        const sl_graph_value *value = &b->graph[0]->values[v];
        if (value->class == SL_VALUE_PARAMETER_GRADIENT)
            b->owner_block[value->param] = SL_MIN(b->owner_block[value->param], value->block);
    }
}

/* ---- tasks ---- */

sl_status sl_program_add_task(builder *b, const sl_task *task)
{
    sl_program *p = b->program;
    if (p->n_tasks >= b->capacity_tasks)
        return sl_fail(SL_E_INTERNAL, "a program has more tasks than its graph has nodes (%d)", b->capacity_tasks);
    for (int k = 0; k < SL_MAX_OUT; k++) {
        if (task->out[k].object < 0)
            continue;
        sl_object *object = &p->objects[task->out[k].object];
        bool whole = task->out[k].offset == 0 && sl_type_bytes(&task->out[k].type) == object->bytes;
        bool alone = whole && !(task->accumulate >> k & 1u) && !(sl_op(task->op)->updates >> k & 1u);
        object->producer = object->producer == UNKNOWN_PRODUCER && alone ? p->n_tasks : -1;
    }
    p->tasks[p->n_tasks++] = *task;
    return SL_OK;
}

static sl_status set_kind(builder *b, int32_t chunk, int32_t node, uint32_t plain_accumulate, sl_task *task)
{
    bool by_slice = b->sliced && sl_op(task->op)->clear_slice;
    int64_t row = by_slice ? sl_program_slice(b, chunk) : b->variant[chunk];
    int32_t *slot = &b->signature_slots[(row * b->n_nodes + node) * 2 + (task->accumulate != plain_accumulate)];
    if (!*slot) {
        SL_TRY(sl_program_signature(b, task, &task->signature));
        *slot = task->signature + 1;
    }
    task->signature = *slot - 1;
    return SL_OK;
}

/* What is known of the segments without their values. The operand has space for the largest number of documents, so its type shows
 * neither the cost nor whether all segments are equal. */
static sl_chunk_position position_of(const builder *b, const sl_chunk *chunk)
{
    const sl_program *p = b->program;
    const int64_t seqlen = p->config.chunking.seqlen;
    const bool alike = p->config.max_segments == p->chunks[0].n_sequences; /* no documents within a sequence */
    return (sl_chunk_position){.first_row = chunk->first_sequence * seqlen + chunk->slice_offset,
                               .slice_offset = chunk->slice_offset,
                               .seqlen = p->config.cache_rows ? p->config.cache_rows : seqlen,
                               .segment_rows = !alike      ? 0
                                               : b->sliced ? chunk->slice_offset + chunk->tokens
                                                           : seqlen,
                               .nondeterministic = p->config.nondeterministic};
}

static sl_status add_node_task(builder *b, int32_t chunk, int32_t i)
{
    const sl_node *node = &b->graph[0]->nodes[i];
    sl_task task = b->prototype[b->variant[chunk]][i];
    uint32_t plain = task.accumulate;
    task.chunk = chunk;
    task.round = (int32_t) (chunk / b->chunks_per_round);
    const sl_op_def *def = sl_op(node->op);
    const sl_chunk_position place = position_of(b, &b->program->chunks[chunk]);
    if (def->place)
        def->place(&task.attrs, &place);
    for (int k = 0; k < node->n_in; k++)
        if (node->in[k] != SL_NO_VALUE) {
            const bool spans = def->context_in >> k & 1u;
            SL_TRY(sl_program_resolve(b, chunk, node->in[k], -1, spans, &task.in[k], &task.accumulate));
        }
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != SL_NO_VALUE) {
            const bool spans = def->context_out >> k & 1u;
            SL_TRY(sl_program_resolve(b, chunk, node->out[k], k, spans, &task.out[k], &task.accumulate));
        }
    SL_TRY(set_kind(b, chunk, i, plain, &task));
    SL_TRY(sl_program_add_task(b, &task));
    for (int k = 0; k < node->n_out; k++)
        if (node->out[k] != SL_NO_VALUE)
            b->written[node->out[k]] = 1;
    return SL_OK;
}

/* Sequences ascending, the slices of one sequence in reverse. */
static int32_t backward_chunk(const builder *b, int32_t first, int32_t i)
{
    return first + (int32_t) (i / b->slices * b->slices + (b->slices - 1 - i % b->slices));
}

static sl_status add_round(builder *b, int32_t round)
{
    sl_program *p = b->program;
    int32_t first = (int32_t) (round * b->chunks_per_round),
            count = (int32_t) SL_MIN(b->chunks_per_round, p->n_chunks - first);
    bool last_round = round == p->n_rounds - 1;
    memset(b->slots, -1, (size_t) (b->chunks_per_round * b->n_values) * sizeof *b->slots);
    for (int32_t block = 0; block < p->n_blocks; block++)
        for (int32_t chunk = first; chunk < first + count; chunk++)
            for (int32_t i = 0; i < p->blocks[block].n_forward; i++)
                SL_TRY(add_node_task(b, chunk, p->blocks[block].first_forward + i));
    for (int32_t block = p->n_blocks - 1; block >= 0 && !p->config.forward_only; block--)
        for (int32_t j = 0; j < count; j++)
            for (int32_t i = 0; i < p->blocks[block].n_backward; i++) {
                int32_t node = p->blocks[block].first_backward + i;
                SL_TRY(add_node_task(b, backward_chunk(b, first, j), node));
                if (last_round && j == count - 1)
                    SL_TRY(sl_program_complete_groups(b, node));
            }
    return SL_OK;
}

static sl_status prepare_norm(builder *b)
{
    sl_program *p = b->program;
    sl_object partials = sl_program_object("sums of squares", SL_CLASS_HIDDEN, (size_t) b->n_runs * 4, -1);
    sl_object gate = sl_program_object("gradient norm", SL_CLASS_RESULT, 16, -1);
    b->partials_object = p->gate_object = -1;
    if (p->config.forward_only || !has_norm(&p->config))
        return SL_OK;
    SL_TRY(sl_program_add_object(b, &partials, &b->partials_object));
    return sl_program_add_object(b, &gate, &p->gate_object);
}

static sl_status build_program(builder *b, sl_program_owner *owner, const program_source *source)
{
    sl_program *p = b->program;
    SL_TRY(cut_chunks(b));
    b->dtype = sl_policy_of(p->config.precision)->compute;
    p->config.max_segments =
        SL_MAX(p->config.max_segments, p->chunks[0].n_sequences); /* sequences are always separate */
    SL_TRY(sl_program_find_graphs(b, owner, source));
    SL_TRY(allocate_tables(b));
    find_home_blocks(b);
    find_makers(b);
    sl_program_find_completions(b);
    SL_TRY(sl_program_assign(b));
    SL_TRY(sl_program_find_runs(b));
    SL_TRY(sl_program_add_data(b));
    SL_TRY(sl_program_add_persistent(b));
    SL_TRY(prepare_norm(b));
    for (int32_t round = 0; round < p->n_rounds; round++)
        SL_TRY(add_round(b, round));
    if (!p->config.forward_only)
        SL_TRY(sl_program_finish_updates(b));
    sl_program_finish_signatures(b);
    for (int32_t i = 0; i < p->n_objects; i++)
        p->objects[i].producer = SL_MAX(p->objects[i].producer, -1);
    return SL_OK;
}

static sl_status create(const sl_program_config *config, const program_source *source, sl_program **out)
{
    sl_region *region;
    sl_program_owner *owner;
    SL_TRY(check_config(config));
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_region_alloc(region, &owner, 1, sizeof *owner);
    if (status != SL_OK) {
        sl_region_destroy(region);
        return status;
    }
    builder b = {.program = &owner->program};
    owner->program.region = region;
    owner->program.config = *config;
    status = build_program(&b, owner, source);
    free_tables(&b);
    if (status == SL_OK)
        *out = &owner->program;
    else
        sl_program_destroy(&owner->program);
    return status;
}

sl_status sl_program_create(const sl_program_config *config, sl_graph_builder build, void *context, sl_program **out)
{
    return create(config, &(program_source){.build = build, .context = context}, out);
}

sl_status sl_program_derive(const sl_program *base, const sl_program_form *form, sl_program **out)
{
    sl_program_config config = base->config;
    sl_chunking *c = &config.chunking;
    config.chunks_per_round = form->chunks_per_round;
    config.rematerialize = form->rematerialize;
    config.workspace_limit = form->workspace_limit;
    if (form->rounds)
        c->sequences = c->chunk_tokens < c->seqlen
                           ? form->rounds * form->chunks_per_round / sl_chunking_slices(c)
                           : form->rounds * form->chunks_per_round * (c->chunk_tokens / c->seqlen);
    SL_ASSERT(c->sequences <= base->config.chunking.sequences);
    SL_TRY(create(&config, &(program_source){.base = base}, out));
    (*out)->objects[(*out)->losses_object].bytes = base->objects[base->losses_object].bytes;
    return SL_OK;
}

void sl_program_destroy(sl_program *program)
{
    if (!program)
        return;
    sl_program_owner *owner = (sl_program_owner *) program;
    sl_program_release_graphs(owner);
    sl_region_destroy(program->region);
}
