/* Damaged plans. Good plans of random programs are changed in one field, or by one action more or less, in every way
 * listed below; whatever the replay (replay.h) finds wrong, the check must refuse. Harmless changes may be refused too: the
 * check asks for exact versions and for dependencies on other streams only. */
#include "replay.h"
#include "test.h"

#ifdef __SANITIZE_ADDRESS__
#define PROGRAMS 4
#else
#define PROGRAMS 30
#endif

typedef struct tally {
    int broken, harmless, accepted, missed;
} tally;

typedef struct subject {
    synthetic *s;
    sl_plan *good;
    replay truth;
    size_t budget[SL_TIER_COUNT];
    rng r;
    int recomputed, copied, on_host;
} subject;

static subject make_subject(uint64_t seed)
{
    subject x = {.r = {seed * 31}};
    x.s = seed % 2 ? synthetic_sliced(seed, 3 + rng_below(&x.r, 5))
                   : synthetic_random(seed, 10 + rng_below(&x.r, 20), 8 + rng_below(&x.r, 8));
    sl_plan_config config = {.budget = {SIZE_MAX, SIZE_MAX}, .max_evaluations = 10};
    size_t least;
    if (seed % 2) /* copies are slow: more is recomputed */
        for (int i = 0; i < 2; i++)
            x.s->costs->link_bytes_per_s[i] = x.s->costs->link_bytes_per_s_both[i] = 0.02;
    CHECK_OK(sl_plan_minimum(&x.s->program, x.s->costs, &config, SL_TIER_DEVICE, &least));
    config.budget[SL_TIER_DEVICE] = least + least / (seed % 3 ? 4 : 16);
    if (seed % 4 == 0) {
        CHECK_OK(sl_plan_minimum(&x.s->program, x.s->costs, &config, SL_TIER_HOST, &least));
        config.budget[SL_TIER_HOST] = least;
    }
    CHECK_OK(sl_plan_create(&x.s->program, x.s->costs, &config, &x.good));
    /* Exactly what it takes: the smallest overrun is an overrun. */
    sl_plan_extent(x.good, x.budget);
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        x.budget[tier] = SL_MAX(x.budget[tier], (size_t) SL_ALIGN);
    x.truth = replay_new(&x.s->program);
    for (int32_t i = 0; i < x.good->n_actions; i++) {
        x.recomputed += x.good->actions[i].kind == SL_ACTION_TASK && x.good->actions[i].recompute;
        x.copied += x.good->actions[i].kind == SL_ACTION_COPY;
        x.on_host += x.good->actions[i].stream == SL_STREAM_HOST;
    }
    return x;
}

static void free_subject(subject *x)
{
    replay_free(&x->truth);
    sl_plan_destroy(x->good);
    synthetic_free(x->s);
}

static void *copy_of(const void *from, int64_t count, size_t size)
{
    void *to = calloc((size_t) count + 2, size);
    if (count)
        memcpy(to, from, (size_t) count * size);
    return to;
}

/* A plan of one's own, with space for one more action. */
static sl_plan clone(const sl_plan *plan, int32_t n_objects)
{
    sl_plan c = *plan;
    c.allocations = copy_of(plan->allocations, plan->n_allocations, sizeof *c.allocations);
    c.actions = copy_of(plan->actions, plan->n_actions, sizeof *c.actions);
    c.deps = copy_of(plan->deps, plan->n_deps, sizeof *c.deps);
    c.use_allocations = copy_of(plan->use_allocations, plan->n_use_allocations, sizeof *c.use_allocations);
    c.placement = copy_of(plan->placement, n_objects, sizeof *c.placement);
    return c;
}

static void free_clone(sl_plan *c)
{
    free(c->allocations);
    free(c->actions);
    free(c->deps);
    free(c->use_allocations);
    free(c->placement);
}

static void examine(const subject *x, const sl_plan *plan, tally *t, const char *what, int32_t index, int64_t value)
{
    const char *fault = replay_fault(&x->truth, plan, x->budget);
    sl_status status = sl_plan_check(&x->s->program, plan, x->budget);
    CHECK_MSG(status == SL_OK || status == SL_E_INTERNAL, "%s", sl_error_message());
    bool missed = fault && status == SL_OK;
    t->broken += fault != NULL;
    t->harmless += !fault;
    t->accepted += !fault && status == SL_OK;
    t->missed += missed;
    CHECK_MSG(!missed, "%s %d set to %d is accepted, but: %s", what, (int) index, (int) value, fault ? fault : "");
}

/* Tries `field` of the plan `c` with each of the values, and puts it back. */
#define TRY_VALUES(field, what, index, ...)                                \
    do {                                                                   \
        const int64_t values_[] = {__VA_ARGS__};                           \
        __typeof__(field) kept_ = (field);                                 \
        for (size_t v_ = 0; v_ < sizeof values_ / sizeof *values_; v_++) { \
            (field) = (__typeof__(field)) values_[v_];                     \
            if ((field) != kept_)                                          \
                examine(&x, &c, &t, what, index, values_[v_]);             \
        }                                                                  \
        (field) = kept_;                                                   \
    } while (0)

static int32_t any(subject *x, int32_t n)
{
    return n > 0 ? rng_below(&x->r, n) : 0;
}

/* Another place of the same object; else any. */
static int32_t sibling(subject *x, const sl_plan *plan, int32_t place)
{
    for (int k = 0; place >= 0 && k < 40; k++) {
        int32_t other = any(x, plan->n_allocations);
        if (other != place && plan->allocations[other].object == plan->allocations[place].object)
            return other;
    }
    return any(x, plan->n_allocations);
}

static void report(const char *what, const tally *t)
{
    printf("%s: %d broken, %d accepted all the same, %d harmless, %d of them accepted\n", what, t->broken, t->missed,
           t->harmless, t->accepted);
    CHECK_I64(t->missed, 0);
}

TEST(good_plans)
{
    int recomputed = 0, copied = 0, on_host = 0;
    for (uint64_t seed = 1; seed <= 10 * PROGRAMS; seed++) {
        subject x = make_subject(seed);
        const char *fault = replay_fault(&x.truth, x.good, x.budget);
        CHECK_MSG(!fault, "seed %d: %s", (int) seed, fault ? fault : "");
        CHECK_OK(sl_plan_check(&x.s->program, x.good, x.budget));
        recomputed += x.recomputed;
        copied += x.copied;
        on_host += x.on_host;
        free_subject(&x);
    }
    printf("%d copies, %d recomputations, %d tasks on the host\n", copied, recomputed, on_host);
    CHECK(copied > 10 * PROGRAMS && recomputed > PROGRAMS && on_host > PROGRAMS);
}

TEST(places)
{
    tally t = {0};
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        subject x = make_subject(seed);
        sl_plan c = clone(x.good, x.s->program.n_objects);
        for (int32_t i = 0; i < c.n_allocations; i++) {
            sl_allocation *p = &c.allocations[i];
            int64_t address = (int64_t) p->address, bytes = (int64_t) p->bytes;
            TRY_VALUES(p->address, "address of place", i, address + 1, address + SL_ALIGN, address - SL_ALIGN, 0,
                       (int64_t) c.allocations[any(&x, c.n_allocations)].address,
                       (int64_t) c.allocations[any(&x, c.n_allocations)].address, (int64_t) x.budget[p->tier],
                       (int64_t) (x.budget[p->tier] - p->bytes) / SL_ALIGN * SL_ALIGN, -SL_ALIGN);
            TRY_VALUES(p->bytes, "bytes of place", i, 0, bytes - 1, bytes - SL_ALIGN, bytes + SL_ALIGN, bytes / 2, 1,
                       (int64_t) x.budget[p->tier] + 1, -1);
            TRY_VALUES(p->tier, "tier of place", i, SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_COUNT, -1);
            TRY_VALUES(p->object, "object of place", i, -1, -2, p->object + 1, any(&x, x.s->program.n_objects),
                       x.s->program.n_objects);
            TRY_VALUES(p->first, "first of place", i, p->first - 1, p->first + 1, -1, 0, p->last);
            TRY_VALUES(p->last, "last of place", i, p->last - 1, p->last + 1, p->first, c.n_actions, -1);
        }
        free_clone(&c);
        free_subject(&x);
    }
    report("places", &t);
    CHECK(t.broken > 100 * PROGRAMS && t.accepted > PROGRAMS);
}

TEST(placements)
{
    tally t = {0};
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        subject x = make_subject(seed);
        sl_plan c = clone(x.good, x.s->program.n_objects);
        for (int32_t o = 0; o < x.s->program.n_objects; o++)
            TRY_VALUES(c.placement[o], "placement of object", o, -1, sibling(&x, &c, c.placement[o]),
                       any(&x, c.n_allocations), 0, c.n_allocations, 1 << 28);
        for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
            size_t extent[SL_TIER_COUNT] = {0}, kept = x.budget[tier];
            for (int32_t i = 0; i < c.n_allocations; i++)
                extent[c.allocations[i].tier] =
                    SL_MAX(extent[c.allocations[i].tier], c.allocations[i].address + c.allocations[i].bytes);
            x.budget[tier] = extent[tier];
            CHECK_OK(sl_plan_check(&x.s->program, &c, x.budget));
            x.budget[tier] = extent[tier] - 1;
            examine(&x, &c, &t, "budget of tier", tier, (int64_t) extent[tier] - 1);
            x.budget[tier] = 0;
            examine(&x, &c, &t, "budget of tier", tier, 0);
            x.budget[tier] = kept;
        }
        free_clone(&c);
        free_subject(&x);
    }
    report("placements and budgets", &t);
    CHECK(t.broken > 20 * PROGRAMS && t.harmless == 0);
}

TEST(action_fields)
{
    tally t = {0};
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        subject x = make_subject(seed);
        sl_plan c = clone(x.good, x.s->program.n_objects);
        for (int32_t i = 0; i < c.n_actions; i++) {
            sl_action *a = &c.actions[i];
            TRY_VALUES(a->stream, "stream of action", i, 0, 1, 2, 3, SL_STREAM_COUNT, -1);
            TRY_VALUES(a->first_dep, "first_dep of action", i, a->first_dep - 1, a->first_dep + 1, -1, c.n_deps,
                       1 << 28, -(1 << 28));
            TRY_VALUES(a->n_deps, "n_deps of action", i, a->n_deps - 1, a->n_deps + 1, 0, -1, c.n_deps + 1, 1 << 28);
            for (int32_t k = 0; k < a->n_deps; k++) {
                int32_t *dep = &c.deps[a->first_dep + k];
                TRY_VALUES(*dep, "dependency of action", i, *dep - 1, *dep + 1, any(&x, i), i, i + 1, -1, 0,
                           c.n_actions, 1 << 28);
            }
            if (a->kind == SL_ACTION_COPY) {
                TRY_VALUES(a->object, "object of copy", i, a->object + 1, a->object - 1, -1,
                           any(&x, x.s->program.n_objects));
                TRY_VALUES(a->from, "from of copy", i, a->to, sibling(&x, &c, a->from), sibling(&x, &c, a->from),
                           any(&x, c.n_allocations), -1, c.n_allocations, 1 << 28);
                TRY_VALUES(a->to, "to of copy", i, a->from, sibling(&x, &c, a->to), sibling(&x, &c, a->to),
                           any(&x, c.n_allocations), -1, c.n_allocations, 1 << 28);
                continue;
            }
            TRY_VALUES(a->task, "task of action", i, a->task - 1, a->task + 1, -1, x.s->program.n_tasks, 1 << 28,
                       any(&x, x.s->program.n_tasks));
            TRY_VALUES(a->recompute, "recompute of action", i, 0, 1);
            TRY_VALUES(a->first_use, "first_use of action", i, a->first_use + 1, a->first_use - 1,
                       a->first_use + REPLAY_OPERANDS, a->first_use - REPLAY_OPERANDS, -1, -(1 << 28),
                       c.n_use_allocations - REPLAY_OPERANDS + 1, 1 << 28);
            TRY_VALUES(a->workspace, "workspace of action", i, any(&x, c.n_allocations), any(&x, c.n_allocations),
                       c.n_allocations, 1 << 28, 0, a->workspace >= 0 ? sibling(&x, &c, a->workspace) : 1);
            for (int k = 0; k < REPLAY_OPERANDS; k++) {
                int32_t *place = &c.use_allocations[a->first_use + k];
                TRY_VALUES(*place, "place of operand of action", i, -1, any(&x, c.n_allocations),
                           sibling(&x, &c, *place), sibling(&x, &c, *place), c.n_allocations, 1 << 28);
            }
        }
        free_clone(&c);
        free_subject(&x);
    }
    report("actions", &t);
    CHECK(t.broken > 500 * PROGRAMS && t.accepted > 10 * PROGRAMS);
}

/* Where an action's index goes when `gone` leaves the list (shift -1) or one is put in before it (+1). */
static int32_t shifted(int32_t index, int32_t gone, int shift)
{
    return index >= gone + (shift < 0) ? index + shift : index;
}

static void shift_all(sl_plan *c, int32_t at, int shift)
{
    for (int32_t k = 0; k < c->n_deps; k++)
        c->deps[k] = shifted(c->deps[k], at, shift);
    for (int32_t i = 0; i < c->n_allocations; i++) {
        c->allocations[i].first = shifted(c->allocations[i].first, at, shift);
        c->allocations[i].last = shifted(c->allocations[i].last, at, shift);
    }
}

/* The first and last action of a place follow its uses, so that only what the action did is missing. */
static void renew_lives(sl_plan *c)
{
    for (int32_t i = 0; i < c->n_allocations; i++)
        if (c->allocations[i].first >= 0)
            c->allocations[i].first = c->allocations[i].last = -2;
    for (int32_t i = 0; i < c->n_actions; i++) {
        int32_t touched[REPLAY_OPERANDS + 1];
        int n = touches(c, i, touched);
        for (int k = 0; k < n; k++) {
            sl_allocation *place = &c->allocations[touched[k] & ~TOUCH_WRITES];
            if (place->first == -1)
                continue;
            place->first = place->first < 0 ? i : place->first;
            place->last = i;
        }
    }
    for (int32_t i = 0; i < c->n_allocations; i++)
        if (c->allocations[i].first == -2)
            c->allocations[i].first = c->allocations[i].last = c->n_actions - 1;
}

/* Without an action: a task never runs, a copy never arrives, what is dirty is not written back. Who depended on it now
 * depends on what it depended on, or would have, so that the streams stay ordered. */
TEST(missing_actions)
{
    tally t = {0};
    int copies = 0;
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        subject x = make_subject(seed);
        for (int32_t i = 0; i < x.good->n_actions; i++) {
            sl_plan c = clone(x.good, x.s->program.n_objects);
            for (int32_t k = 0; k < c.n_actions; k++) {
                sl_action *a = &c.actions[k];
                for (int32_t d = 0; d < a->n_deps; d++)
                    if (c.deps[a->first_dep + d] == i)
                        c.deps[a->first_dep + d--] = c.deps[a->first_dep + --a->n_deps];
            }
            copies += c.actions[i].kind == SL_ACTION_COPY;
            memmove(c.actions + i, c.actions + i + 1, (size_t) (c.n_actions - 1 - i) * sizeof *c.actions);
            c.n_actions--;
            shift_all(&c, i, -1);
            examine(&x, &c, &t, "missing action", i, 0);
            renew_lives(&c);
            examine(&x, &c, &t, "missing action with other lives", i, 0);
            free_clone(&c);
        }
        free_subject(&x);
    }
    report("missing actions", &t);
    CHECK(t.broken > 40 * PROGRAMS && copies > 10 * PROGRAMS);
}

/* An action twice in a row, or two neighbours in the other order. */
TEST(repeated_and_swapped_actions)
{
    tally t = {0};
    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        subject x = make_subject(seed);
        for (int32_t i = 0; i < x.good->n_actions; i++) {
            sl_plan c = clone(x.good, x.s->program.n_objects);
            memmove(c.actions + i + 1, c.actions + i, (size_t) (c.n_actions - i) * sizeof *c.actions);
            c.n_actions++;
            shift_all(&c, i + 1, 1);
            examine(&x, &c, &t, "repeated action", i, 0);
            c.actions[i + 1].recompute = true;
            renew_lives(&c);
            examine(&x, &c, &t, "recomputed action", i, 0);
            free_clone(&c);
            if (i + 1 == x.good->n_actions)
                continue;
            c = clone(x.good, x.s->program.n_objects);
            sl_action first = c.actions[i];
            c.actions[i] = c.actions[i + 1];
            c.actions[i + 1] = first;
            for (int32_t k = 0; k < c.n_deps; k++)
                c.deps[k] += c.deps[k] == i ? 1 : c.deps[k] == i + 1 ? -1 : 0;
            examine(&x, &c, &t, "swapped actions", i, 0);
            renew_lives(&c);
            examine(&x, &c, &t, "swapped actions with other lives", i, 0);
            free_clone(&c);
        }
        free_subject(&x);
    }
    report("repeated and swapped actions", &t);
    CHECK(t.broken > 100 * PROGRAMS && t.accepted > PROGRAMS);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(good_plans);
    RUN(places);
    RUN(placements);
    RUN(action_fields);
    RUN(missing_actions);
    RUN(repeated_and_swapped_actions);
    return test_end();
}
