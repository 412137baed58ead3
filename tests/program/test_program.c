/* What holds for every program, checked on random configurations: bytes are written before they are read, once; gradients and
 * parameters are complete before and untouched after their update; kinds and producers mean what they say; arithmetic
 * equals the metric formulas. */
#include "ops/dropout.h"
#include "optim/element.h"
#include "random_program.h"

/* ---- bytes ---- */

/* One mark per byte of every object. */
static unsigned char **new_marks(const sl_program *p)
{
    unsigned char **marks = calloc((size_t) p->n_objects, sizeof *marks);
    for (int32_t i = 0; i < p->n_objects; i++) {
        marks[i] = calloc(1, p->objects[i].bytes + 1);
        if (p->objects[i].persistent || p->objects[i].class == SL_CLASS_DATA)
            memset(marks[i], 1, p->objects[i].bytes);
    }
    return marks;
}

static void free_marks(const sl_program *p, unsigned char **marks)
{
    for (int32_t i = 0; i < p->n_objects; i++)
        free(marks[i]);
    free(marks);
}

static bool all_are(const unsigned char *marks, const sl_use *use, unsigned char value)
{
    size_t bytes = sl_type_bytes(&use->type);
    for (size_t i = 0; i < bytes; i++)
        if (marks[use->offset + i] != value)
            return false;
    return true;
}

static bool inside(const sl_program *p, const sl_use *use)
{
    return use->object < p->n_objects && use->type.rank > 0 &&
           use->offset + sl_type_bytes(&use->type) <= p->objects[use->object].bytes;
}

static void check_bytes(const sl_program *p)
{
    unsigned char **marks = new_marks(p);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        char name[160];
        sl_task_describe(p, t, name);
        for (int i = 0; i < SL_MAX_IN; i++)
            if (task->in[i].object >= 0)
                CHECK_MSG(inside(p, &task->in[i]) && all_are(marks[task->in[i].object], &task->in[i], 1),
                          "%s reads operand %d before it is written", name, i);
        for (int k = 0; k < SL_MAX_OUT; k++) {
            const sl_use *out = &task->out[k];
            if (out->object < 0)
                continue;
            bool adds = (task->accumulate | sl_op(task->op)->updates) >> k & 1u;
            CHECK_MSG(inside(p, out) && all_are(marks[out->object], out, adds), "%s %s output %d", name,
                      adds ? "adds to what is not there yet:" : "writes again", k);
            memset(marks[out->object] + out->offset, 1, sl_type_bytes(&out->type));
        }
    }
    for (int32_t i = 0; i < p->n_objects; i++)
        if (p->objects[i].class == SL_CLASS_RESULT)
            CHECK(all_are(marks[i], &(sl_use){i, 0, sl_type_1d(SL_F32, (int64_t) p->objects[i].bytes / 4)}, 1));
    free_marks(p, marks);
}

/* ---- updates ---- */

static bool is_update(const sl_task *task)
{
    return task->op == SL_OP_ADAMW || task->op == SL_OP_SGD;
}

/* Each element of each parameter is updated once, padding never, and nobody reads a group behind its update. */
static void check_updates(const sl_program *p)
{
    unsigned char **updated = calloc((size_t) p->n_objects, sizeof *updated);
    bool gate_seen = false;
    for (int32_t i = 0; i < p->n_objects; i++)
        updated[i] = calloc(1, p->objects[i].bytes + 1);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        gate_seen |= task->op == SL_OP_GRAD_GATE;
        if (is_update(task)) {
            const sl_use *out = &task->out[0];
            CHECK(!p->config.gated || gate_seen);
            CHECK(task->host_allowed && task->phase == SL_PHASE_OPTIMIZER);
            CHECK(all_are(updated[out->object], out, 0));
            memset(updated[out->object] + out->offset, 1, sl_type_bytes(&out->type));
            continue;
        }
        for (int i = 0; i < SL_MAX_IN; i++)
            if (task->in[i].object >= 0 && p->objects[task->in[i].object].class == SL_CLASS_PARAMETER)
                CHECK(all_are(updated[task->in[i].object], &task->in[i], 0));
    }
    for (int32_t i = 0; i < p->n_params; i++) {
        const sl_param *param = &p->params[i];
        sl_use use = {p->param_object[param->group_index], param->offset, param->type};
        CHECK(all_are(updated[use.object], &use, !p->config.forward_only));
        memset(updated[use.object] + use.offset, 0, sl_type_bytes(&use.type));
    }
    for (int32_t i = 0; i < p->n_objects; i++) {
        CHECK(memchr(updated[i], 1, p->objects[i].bytes) == NULL); /* what is left is padding */
        free(updated[i]);
    }
    free(updated);
}

/* ---- kinds, producers, order ---- */

static bool same_kind(const sl_task *a, const sl_task *b)
{
    sl_attrs x = a->attrs, y = b->attrs;
    if (a->op == SL_OP_DROPOUT)
        sl_dropout_set(&x)->first_row = sl_dropout_set(&y)->first_row = 0,
        sl_dropout_set(&x)->stream = sl_dropout_set(&y)->stream = 0;
    if (a->op == SL_OP_ADAMW)
        sl_adamw_set(&x)->stream = sl_adamw_set(&y)->stream = 0;
    if (a->op == SL_OP_SGD)
        sl_sgd_set(&x)->stream = sl_sgd_set(&y)->stream = 0;
    bool same = a->op == b->op && a->accumulate == b->accumulate && memcmp(&x, &y, sizeof x) == 0;
    for (int i = 0; i < SL_MAX_IN; i++)
        same &= memcmp(&a->in[i].type, &b->in[i].type, sizeof(sl_type)) == 0;
    for (int k = 0; k < SL_MAX_OUT; k++)
        same &= memcmp(&a->out[k].type, &b->out[k].type, sizeof(sl_type)) == 0;
    return same;
}

static void check_kinds(const sl_program *p)
{
    int64_t total = 0;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        REQUIRE(p->tasks[t].signature >= 0 && p->tasks[t].signature < p->n_signatures);
        CHECK(same_kind(&p->tasks[t], &p->tasks[p->signatures[p->tasks[t].signature].example]));
    }
    for (int32_t k = 0; k < p->n_signatures; k++) {
        total += p->signatures[k].count;
        for (int32_t other = 0; other < k; other++)
            CHECK(!same_kind(&p->tasks[p->signatures[k].example], &p->tasks[p->signatures[other].example]));
    }
    CHECK_I64(total, p->n_tasks);
}

static void check_objects(const sl_program *p)
{
    int32_t *writers = calloc((size_t) p->n_objects, sizeof *writers);
    int32_t *users = calloc((size_t) p->n_objects, sizeof *users);
    int32_t *rounds = calloc((size_t) p->n_chunks, sizeof *rounds);
    for (int32_t t = 0; t < p->n_tasks; t++) {
        if (p->tasks[t].chunk >= 0)
            rounds[p->tasks[t].chunk] = p->tasks[t].round;
        for (int i = 0; i < SL_MAX_IN; i++)
            if (p->tasks[t].in[i].object >= 0)
                users[p->tasks[t].in[i].object]++;
        for (int k = 0; k < SL_MAX_OUT; k++)
            if (p->tasks[t].out[k].object >= 0)
                writers[p->tasks[t].out[k].object]++;
    }
    for (int32_t i = 0; i < p->n_objects; i++) {
        const sl_object *object = &p->objects[i];
        REQUIRE(object->bytes > 0);
        CHECK_MSG(users[i] + writers[i] > 0, "nobody uses %s", object->name);
        bool owned = object->class == SL_CLASS_PARAMETER || object->class == SL_CLASS_GRADIENT ||
                     object->class == SL_CLASS_OPTIMIZER;
        CHECK(owned == (object->group >= 0));
        CHECK_I64(object->round, object->chunk >= 0 ? rounds[object->chunk] : -1);
        if (object->producer >= 0) {
            bool found = false;
            for (int k = 0; k < SL_MAX_OUT; k++)
                found |= p->tasks[object->producer].out[k].object == i &&
                         p->tasks[object->producer].out[k].offset == 0 &&
                         sl_type_bytes(&p->tasks[object->producer].out[k].type) == object->bytes &&
                         !(p->tasks[object->producer].accumulate >> k & 1u);
            CHECK(found && writers[i] == 1);
        }
    }
    free(writers), free(users), free(rounds);
}

/* Rounds ascend; in each: blocks forward, then back; chunks ascend, slices of a sequence in reverse on the way back. */
static void check_order(const sl_program *p)
{
    const sl_task *last = NULL;
    for (int32_t t = 0; t < p->n_tasks; t++) {
        const sl_task *task = &p->tasks[t];
        if (task->phase == SL_PHASE_OPTIMIZER)
            continue;
        if (last) {
            CHECK(task->round >= last->round);
            bool same = task->round == last->round && task->phase == last->phase && task->block == last->block;
            const sl_chunk *a = &p->chunks[last->chunk], *b = &p->chunks[task->chunk];
            CHECK(!same || b->first_sequence >= a->first_sequence);
            if (same && a->first_sequence == b->first_sequence && last->chunk != task->chunk)
                CHECK((task->phase == SL_PHASE_BACKWARD) == (b->slice_offset < a->slice_offset));
            if (task->round == last->round && task->phase == last->phase && !same)
                CHECK((task->phase == SL_PHASE_BACKWARD) == (task->block < last->block));
        }
        last = task;
    }
}

static void check_chunks(const sl_program *p)
{
    int64_t tokens = 0;
    for (int32_t c = 0; c < p->n_chunks; c++)
        tokens += p->chunks[c].tokens;
    CHECK_I64(tokens, p->tokens);
    CHECK_I64(p->objects[p->chunks[0].data[SL_INPUT_SEGMENTS]].bytes, (p->config.max_segments + 1) * 4);
    CHECK(p->config.max_segments >= p->chunks[0].n_sequences);
    CHECK_I64(p->tokens, p->config.chunking.seqlen * p->config.chunking.sequences);
}

TEST(random_programs)
{
    for (int turn = 0; turn < 150; turn++) {
        sl_model model = random_model();
        sl_program_config config = random_config();
        sl_program *p;
        int before = test_failures;
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
        check_chunks(p);
        check_bytes(p);
        check_updates(p);
        check_kinds(p);
        check_objects(p);
        check_order(p);
        double want = sl_model_step_flops(&model, config.chunking.seqlen, config.chunking.sequences);
        if (!config.forward_only)
            CHECK_MSG(p->flops == want, "the tasks' arithmetic is %.17g, the formula says %.17g", p->flops, want);
        if (test_failures != before)
            printf("turn %d: %s, %lld sequences of %lld in chunks of %lld\n", turn, model.family->name,
                   (long long) config.chunking.sequences, (long long) config.chunking.seqlen,
                   (long long) config.chunking.chunk_tokens);
        sl_program_destroy(p);
    }
}

/* An update comes right behind its group's last gradient, while earlier layers still go back. */
TEST(updates_come_early)
{
    sl_model model;
    sl_program_config config = {.chunking = {16, 2, 16}, .max_segments = 1};
    sl_program *p;
    CHECK_OK(sl_model_find("byte-test", &model));
    CHECK_OK(sl_program_create(&config, sl_build_model, &model, &p));
    int32_t updates = 0;
    for (int32_t t = 0; t < p->n_tasks; t++)
        if (is_update(&p->tasks[t])) {
            const sl_task *before = &p->tasks[t - 1];
            updates++;
            CHECK(before->phase == SL_PHASE_BACKWARD && before->chunk == 1);
        }
    CHECK_I64(updates, p->n_groups);
    CHECK_STR(p->tasks[p->n_tasks - 1].name, "embedding");
    CHECK_I64(p->gate_object, -1);
    sl_program_destroy(p);
}

/* ---- other forms of a program ---- */

static bool same_use(const sl_use *a, const sl_use *b)
{
    return a->object == b->object &&
           (a->object < 0 || (a->offset == b->offset && memcmp(&a->type, &b->type, sizeof a->type) == 0));
}

static void check_equal_programs(const sl_program *a, const sl_program *b)
{
    REQUIRE(a->n_tasks == b->n_tasks && a->n_objects == b->n_objects && a->n_signatures == b->n_signatures);
    CHECK(a->n_rounds == b->n_rounds && a->n_chunks == b->n_chunks && a->flops == b->flops);
    for (int32_t t = 0; t < a->n_tasks; t++) {
        const sl_task *x = &a->tasks[t], *y = &b->tasks[t];
        bool same = x->op == y->op && x->accumulate == y->accumulate && x->phase == y->phase && x->block == y->block &&
                    x->chunk == y->chunk && x->round == y->round && x->signature == y->signature &&
                    strcmp(x->name, y->name) == 0 && memcmp(&x->attrs, &y->attrs, sizeof x->attrs) == 0;
        for (int i = 0; i < SL_MAX_IN; i++)
            same = same && same_use(&x->in[i], &y->in[i]);
        for (int k = 0; k < SL_MAX_OUT; k++)
            same = same && same_use(&x->out[k], &y->out[k]);
        CHECK_MSG(same, "task %d differs", t);
    }
    for (int32_t o = 0; o < a->n_objects; o++) {
        const sl_object *x = &a->objects[o], *y = &b->objects[o];
        CHECK_MSG(strcmp(x->name, y->name) == 0 && x->class == y->class && x->bytes == y->bytes &&
                      x->block == y->block && x->chunk == y->chunk && x->round == y->round &&
                      x->persistent == y->persistent && x->producer == y->producer && x->group == y->group,
                  "object %s differs", x->name);
    }
}

/* Of one program, with one after the other destroyed: as the model would have made it. */
TEST(forms_are_derived)
{
    for (int turn = 0; turn < 60; turn++) {
        sl_model model = random_model();
        sl_program_config config = random_config();
        sl_program *base, *derived, *wanted;
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &base));
        for (int i = 0; i < 3; i++) {
            sl_program_form form = {.chunks_per_round = pick(1, 4),
                                    .rematerialize = !config.forward_only && pick(0, 1),
                                    .workspace_limit = (size_t) pick(0, 1)};
            config.chunks_per_round = form.chunks_per_round;
            config.rematerialize = form.rematerialize;
            CHECK_OK(sl_program_derive(base, &form, &derived));
            CHECK(derived->config.workspace_limit == form.workspace_limit);
            sl_program_destroy(base);
            CHECK_OK(sl_program_create(&config, sl_build_model, &model, &wanted));
            check_equal_programs(derived, wanted);
            sl_program_destroy(wanted);
            base = derived;
        }
        sl_program_destroy(base);
    }
}

/* The first rounds of a step: a shorter step, but for results as long as the whole one's. */
TEST(first_rounds)
{
    for (int sliced = 0; sliced < 2; sliced++) {
        sl_model model;
        sl_program *base, *derived, *wanted;
        sl_program_config config = {.max_segments = 2, .chunking = {8, 21, sliced ? 4 : 16}};
        const sl_program_form form = {.chunks_per_round = 2, .rounds = 3};
        CHECK_OK(sl_model_find("byte-test", &model));
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &base));
        CHECK_OK(sl_program_derive(base, &form, &derived));
        config.chunking.sequences = sliced ? 3 : 12;
        config.chunks_per_round = 2;
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &wanted));
        CHECK_I64(derived->n_rounds, 3);
        wanted->objects[wanted->losses_object].bytes = (size_t) base->n_chunks * sizeof(float);
        check_equal_programs(derived, wanted);
        sl_program_destroy(wanted);
        sl_program_destroy(derived);
        sl_program_destroy(base);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(random_programs);
    RUN(forms_are_derived);
    RUN(first_rounds);
    RUN(updates_come_early);
    return test_end();
}
