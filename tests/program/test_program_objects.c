/* What a program's objects are, checked on random configurations: their class says when and by which chunks they are used; inputs are
 * shared as their scope says; names, bytes and tables of parameters, states and losses fit the model; the norm and the updates read
 * the same runs of gradients. */
#include "optim/element.h"
#include "random_program.h"

/* How the tasks of a step use an object. */
typedef struct usage {
    int32_t n_reads, n_writes;
    bool begins_written;             /* its first use writes it */
    bool ends_read;                  /* its last use reads it */
    unsigned read_in, written_in;    /* bits of phases */
    int32_t least_chunk, most_chunk; /* of its users; -1: a task of no chunk */
} usage;

static void note_use(usage *u, const sl_task *task, bool writes)
{
    if (u->n_reads + u->n_writes == 0) {
        u->begins_written = writes;
        u->least_chunk = u->most_chunk = task->chunk;
    }
    u->least_chunk = SL_MIN(u->least_chunk, task->chunk);
    u->most_chunk = SL_MAX(u->most_chunk, task->chunk);
    u->ends_read = !writes;
    *(writes ? &u->written_in : &u->read_in) |= 1u << task->phase;
    *(writes ? &u->n_writes : &u->n_reads) += 1;
}

static usage *usages_of(const sl_program *p)
{
    usage *all = calloc((size_t) p->n_objects, sizeof *all);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        for (int i = 0; i < SL_MAX_IN; i++)
            if (task->in[i].object >= 0)
                note_use(&all[task->in[i].object], task, false);
        for (int k = 0; k < SL_MAX_OUT; k++)
            if (task->out[k].object >= 0)
                note_use(&all[task->out[k].object], task, true);
    }
    return all;
}

enum { FORWARD = 1 << SL_PHASE_FORWARD, BACKWARD = 1 << SL_PHASE_BACKWARD, UPDATE = 1 << SL_PHASE_OPTIMIZER };

static bool within(unsigned phases, unsigned allowed)
{
    return (phases & ~allowed) == 0;
}

/* Belongs to one chunk, whose tasks alone use it, the first of them to write it. */
static bool is_private(const sl_program *p, const sl_object *object, const usage *u)
{
    int32_t round = (int32_t) (object->chunk / p->config.chunks_per_round);
    return object->chunk >= 0 && u->least_chunk == object->chunk && u->most_chunk == object->chunk &&
           object->round == round && u->begins_written && object->block >= 0 && object->block < p->n_blocks;
}

static bool is_of_sequence(const sl_program *p, const sl_object *object, const usage *u)
{
    int64_t sequence = p->chunks[object->chunk].first_sequence;
    return p->config.chunking.chunk_tokens < p->config.chunking.seqlen && p->chunks[object->chunk].slice_offset == 0 &&
           u->least_chunk >= object->chunk && p->chunks[u->most_chunk].first_sequence == sequence && u->begins_written;
}

static bool fits_class(const sl_program *p, const sl_object *object, const usage *u)
{
    const bool unplaced = object->chunk < 0 && object->round < 0;
    switch (object->class) {
    case SL_CLASS_PARAMETER:
        return object->persistent && unplaced && object->block < 0 && within(u->written_in, UPDATE) && u->n_reads > 0;
    case SL_CLASS_OPTIMIZER:
        return object->persistent && unplaced && object->block < 0 && within(u->read_in | u->written_in, UPDATE);
    case SL_CLASS_GRADIENT:
        return !object->persistent && unplaced && object->block >= 0 && u->begins_written && u->ends_read &&
               u->written_in & BACKWARD && u->read_in == UPDATE;
    case SL_CLASS_ACTIVATION:
        return !object->persistent && is_private(p, object, u) &&
               within(u->read_in | u->written_in, FORWARD | BACKWARD);
    case SL_CLASS_CONTEXT:
        return !object->persistent && is_of_sequence(p, object, u) &&
               within(u->read_in | u->written_in, FORWARD | BACKWARD);
    case SL_CLASS_HIDDEN:
        if (object->chunk < 0) /* sums of squares */
            return !object->persistent && unplaced && u->read_in == UPDATE && u->written_in == UPDATE;
        return !object->persistent && is_private(p, object, u) && u->read_in == BACKWARD && u->written_in == BACKWARD;
    case SL_CLASS_DATA:
        return !object->persistent && u->n_writes == 0 && u->n_reads > 0 && object->block < 0;
    case SL_CLASS_RESULT:
        return !object->persistent && unplaced && u->n_writes > 0 && within(u->read_in, UPDATE);
    default:
        return false;
    }
}

static void check_classes(const sl_program *p)
{
    usage *all = usages_of(p);
    for (int32_t o = 0; o < p->n_objects; o++)
        CHECK_MSG(fits_class(p, &p->objects[o], &all[o]),
                  "%s of chunk %d is no %s: %d reads (phases %x), %d writes (%x), chunks %d to %d", p->objects[o].name,
                  p->objects[o].chunk, sl_object_class_name(p->objects[o].class), all[o].n_reads, all[o].read_in,
                  all[o].n_writes, all[o].written_in, all[o].least_chunk, all[o].most_chunk);
    CHECK(p->losses_object < 0 || all[p->losses_object].n_reads == 0);
    free(all);
}

/* ---- what the model and the step define ---- */

static void check_owned(const sl_program *p, int32_t object, const char *name, sl_object_class class, int32_t group,
                        size_t bytes)
{
    REQUIRE(object >= 0 && object < p->n_objects);
    const sl_object *o = &p->objects[object];
    CHECK_STR(o->name, name);
    CHECK_I64(o->class, class);
    CHECK_I64(o->group, group);
    CHECK_U64(o->bytes, bytes);
}

static void check_groups(const sl_program *p)
{
    const sl_policy *policy = sl_policy_of(p->config.precision);
    const sl_optimizer_def *optimizer = sl_optimizer_of(p->config.optimizer);
    int32_t persistent = 0, wanted = 0;
    for (int32_t g = 0; g < p->n_groups; g++) {
        const sl_param_group *group = &p->groups[g];
        const bool trained = !p->config.forward_only;
        char name[200];
        snprintf(name, sizeof name, "%s.weights", group->name);
        check_owned(p, p->param_object[g], name, SL_CLASS_PARAMETER, g,
                    (size_t) group->count * sl_dtype_bytes(policy->compute));
        wanted++;
        for (int k = 0; k < SL_STATE_SLOTS; k++) {
            if (!trained || k >= optimizer->n_states) {
                CHECK_I64(p->state_object[k][g], -1);
                continue;
            }
            snprintf(name, sizeof name, "%s.%s.weights", sl_state_name(k), group->name);
            check_owned(p, p->state_object[k][g], name, SL_CLASS_OPTIMIZER, g,
                        (size_t) group->count * sl_dtype_bytes(policy->moments));
            wanted++;
        }
        if (!trained || !policy->master) {
            CHECK_I64(p->master_object[g], -1);
            continue;
        }
        snprintf(name, sizeof name, "master.%s.weights", group->name);
        check_owned(p, p->master_object[g], name, SL_CLASS_OPTIMIZER, g, (size_t) group->count * 4);
        wanted++;
    }
    for (int32_t o = 0; o < p->n_objects; o++)
        persistent += p->objects[o].persistent;
    CHECK_I64(persistent, wanted);
}

/* Every chunk adds its own loss once; who adds it is a task of that chunk. */
static void check_losses(const sl_program *p)
{
    int32_t *adders = calloc((size_t) (p->n_losses * p->n_chunks), sizeof *adders);
    CHECK_U64(p->objects[p->losses_object].bytes, (size_t) (p->n_losses * p->n_chunks) * 4);
    for (int32_t t = 0; t < p->n_tasks; t++)
        for (int k = 0; k < SL_MAX_OUT; k++) {
            const sl_use *out = &p->tasks[t].out[k];
            if (out->object != p->losses_object)
                continue;
            int64_t slot = (int64_t) out->offset / 4;
            CHECK_I64(sl_type_bytes(&out->type), 4);
            CHECK_I64(slot % p->n_chunks, p->chunks[p->tasks[t].chunk].loss_slot);
            adders[slot]++;
        }
    for (int32_t i = 0; i < p->n_losses * p->n_chunks; i++)
        CHECK_I64(adders[i], 1);
    for (int32_t c = 0; c < p->n_chunks; c++)
        CHECK_I64(p->chunks[c].loss_slot, c);
    free(adders);
}

static int64_t rows_of(const sl_program *p, const sl_chunk *chunk, sl_input_rows rows)
{
    switch (rows) {
    case SL_ROWS_TOKENS:
        return chunk->tokens;
    case SL_ROWS_SAMPLES:
        return chunk->n_sequences;
    case SL_ROWS_BOUNDS:
        return p->config.max_segments + 1;
    default:
        return SL_STEP_WORDS;
    }
}

static void check_inputs(const sl_program *p)
{
    CHECK_I64(p->step_object >= 0, !p->config.forward_only);
    for (int32_t c = 0; c < p->n_chunks; c++)
        for (int kind = 0; kind < SL_INPUT_COUNT; kind++) {
            const sl_input_def *def = sl_input_of((sl_input_kind) kind);
            const sl_chunk *chunk = &p->chunks[c];
            int32_t object = chunk->data[kind];
            CHECK_I64(object >= 0, chunk->input[kind].rank > 0);
            if (object < 0)
                continue;
            CHECK_I64(p->objects[object].class, SL_CLASS_DATA);
            CHECK_STR(p->objects[object].name, def->name);
            CHECK_I64(chunk->input[kind].dim[0], rows_of(p, chunk, def->rows));
            CHECK_U64(p->objects[object].bytes, sl_type_bytes(&chunk->input[kind]));
            if (def->scope == SL_PER_STEP)
                CHECK_I64(object, p->step_object);
            else /* of the first chunk that shares it */
                CHECK_I64(p->objects[object].chunk, def->scope == SL_PER_SEQUENCE && chunk->slice_offset > 0
                                                        ? p->objects[p->chunks[c - 1].data[kind]].chunk
                                                        : c);
        }
}

/* ---- the end of the step ---- */

/* Elements of a group's run [first, first + count) that get weight decay, which are its first ones. */
static int64_t decayed_in(const sl_program *p, int32_t group, int64_t first, int64_t count)
{
    int64_t decayed = 0, width = (int64_t) sl_dtype_bytes(sl_policy_of(p->config.precision)->compute);
    for (int32_t i = 0; i < p->n_params; i++) {
        const sl_param *param = &p->params[i];
        int64_t at = (int64_t) param->offset / width;
        if (param->group_index == group && param->decay && at >= first && at < first + count)
            decayed += sl_type_count(&param->type);
    }
    return decayed;
}

typedef struct update {
    int64_t decayed;
    uint64_t stream;
    float weight_decay;
    int stochastic;
} update;

static update attrs_of(const sl_program *p, const sl_task *task)
{
    if (p->config.optimizer == SL_OPTIMIZER_ADAMW) {
        const struct sl_adamw_attrs *a = sl_adamw_attrs(&task->attrs);
        CHECK(a->beta1 == p->config.optimizer_options[p->config.optimizer][0] &&
              a->beta2 == p->config.optimizer_options[p->config.optimizer][1] &&
              a->eps == p->config.optimizer_options[p->config.optimizer][2]);
        return (update){a->decayed, a->stream, a->weight_decay, a->stochastic};
    }
    const struct sl_sgd_attrs *a = sl_sgd_attrs(&task->attrs);
    CHECK(a->momentum == p->config.optimizer_options[p->config.optimizer][0]);
    return (update){a->decayed, a->stream, a->weight_decay, a->stochastic};
}

static void check_part(const sl_use *use, int32_t object, sl_dtype dtype, int64_t first, int64_t count)
{
    CHECK_I64(use->object, object);
    if (object < 0)
        return;
    CHECK_I64(use->type.dtype, dtype);
    CHECK_I64(use->offset, first * (int64_t) sl_dtype_bytes(dtype));
    CHECK_I64(sl_type_count(&use->type), count);
}

/* An update takes one run of a group from the gradient, the parameter, its states and its master copy alike. */
static void check_update(const sl_program *p, const sl_task *task, int32_t index)
{
    const sl_policy *policy = sl_policy_of(p->config.precision);
    const sl_optimizer_def *optimizer = sl_optimizer_of(p->config.optimizer);
    const sl_use *gradient = &task->in[0], *out = task->out;
    REQUIRE(gradient->object >= 0);
    int32_t group = p->objects[gradient->object].group;
    int64_t first = (int64_t) (gradient->offset / sl_dtype_bytes(policy->compute)),
            count = sl_type_count(&gradient->type);
    update u = attrs_of(p, task);
    CHECK_I64(p->objects[gradient->object].class, SL_CLASS_GRADIENT);
    CHECK_STR(task->name, p->groups[group].name);
    check_part(out++, p->param_object[group], policy->compute, first, count);
    for (int k = 0; k < optimizer->n_states; k++)
        check_part(out++, p->state_object[k][group], policy->moments, first, count);
    check_part(out, p->master_object[group], SL_F32, first, count);
    check_part(&task->in[1], p->step_object, SL_I32, 0, SL_STEP_WORDS);
    check_part(&task->in[2], p->config.gated ? p->gate_object : -1, SL_F32, 0, 4);
    CHECK_I64(u.decayed, decayed_in(p, group, first, count));
    CHECK(u.weight_decay == p->config.weight_decay);
    CHECK_I64(u.stochastic, policy->stochastic);
    if (p->config.gated) /* from the first group to the last */
        CHECK_U64(u.stream, index);
}

static int32_t task_of(const sl_program *p, sl_op_id op, int32_t from)
{
    while (from < p->n_tasks && p->tasks[from].op != op)
        from++;
    return from;
}

/* The norm covers what the updates take: every run once, each with a partial sum of its own. */
static void check_norm(const sl_program *p, bool normed)
{
    sl_op_id op = sl_optimizer_of(p->config.optimizer)->op;
    int32_t sums = 0, updates = 0, gate = task_of(p, SL_OP_GRAD_GATE, 0), last_sum = -1;
    uint64_t streams = 0;
    for (int32_t t = task_of(p, op, 0); t < p->n_tasks; t = task_of(p, op, t + 1)) {
        check_update(p, &p->tasks[t], updates);
        CHECK(!p->config.gated || t > gate);
        streams |= UINT64_C(1) << attrs_of(p, &p->tasks[t]).stream;
        bool found = !normed;
        for (int32_t s = task_of(p, SL_OP_SUM_SQUARES, 0); s < p->n_tasks; s = task_of(p, SL_OP_SUM_SQUARES, s + 1))
            found |= memcmp(&p->tasks[s].in[0], &p->tasks[t].in[0], sizeof p->tasks[s].in[0]) == 0;
        CHECK(found);
        updates++;
    }
    CHECK_U64(streams, (UINT64_C(1) << updates) - 1); /* each its own part of the noise */
    for (int32_t s = task_of(p, SL_OP_SUM_SQUARES, 0); s < p->n_tasks; s = task_of(p, SL_OP_SUM_SQUARES, s + 1)) {
        CHECK(p->tasks[s].host_allowed && s < gate);
        last_sum = s;
        sums++;
    }
    CHECK_I64(sums, normed ? updates : 0);
    CHECK_I64(p->gate_object >= 0, normed);
    CHECK_I64(gate < p->n_tasks, normed);
    if (!normed)
        return;
    const sl_task *task = &p->tasks[gate];
    CHECK(!task->host_allowed && last_sum < gate);
    check_part(&task->in[0], p->tasks[last_sum].out[0].object, SL_F32, 0, sums);
    check_part(&task->in[1], p->step_object, SL_I32, 0, SL_STEP_WORDS);
    check_part(&task->out[0], p->gate_object, SL_F32, 0, 4);
    CHECK_U64(p->objects[p->gate_object].bytes, 16);
    CHECK_U64(p->objects[task->in[0].object].bytes, (size_t) sums * 4);
}

TEST(random_programs)
{
    int32_t gated = 0, normed = 0, sliced = 0;
    for (int turn = 0; turn < 150; turn++) {
        sl_model model = random_model();
        sl_program_config config = random_config();
        sl_program *p;
        int before = test_failures;
        config.weight_decay = 0.125f;
        for (int i = 0; i < SL_MAX_OPTIMIZER_OPTIONS; i++)
            config.optimizer_options[config.optimizer][i] = 0.5f + 0.0625f * (float) i;
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
        check_classes(p);
        check_groups(p);
        check_losses(p);
        check_inputs(p);
        if (!config.forward_only)
            check_norm(p, config.gated || config.norm);
        gated += !config.forward_only && config.gated;
        normed += !config.forward_only && !config.gated && config.norm;
        sliced += config.chunking.chunk_tokens < config.chunking.seqlen;
        if (test_failures != before)
            printf("turn %d: %s, %lld sequences of %lld in chunks of %lld\n", turn, model.family->name,
                   (long long) config.chunking.sequences, (long long) config.chunking.seqlen,
                   (long long) config.chunking.chunk_tokens);
        sl_program_destroy(p);
    }
    CHECK(gated > 0 && normed > 0 && sliced > 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(random_programs);
    return test_end();
}
