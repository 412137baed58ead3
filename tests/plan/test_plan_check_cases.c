/* Plans written by hand, each right but for one thing that random damage seldom does, with the message that names it. */
#include "replay.h"
#include "test.h"

typedef struct hand {
    synthetic *s;
    sl_plan plan;
    sl_allocation allocations[32];
    sl_action actions[32];
    int32_t deps[64], uses[32 * REPLAY_OPERANDS], placement[16];
    size_t top[SL_TIER_COUNT];
} hand;

static hand begin(void)
{
    hand h = {.s = synthetic_new(16, 16, 16)};
    memset(h.placement, 0xff, sizeof h.placement);
    return h;
}

static int32_t task(hand *h)
{
    return synthetic_task(h->s, synthetic_kind(h->s, 1, 1, 0), SL_PHASE_FORWARD, 0, 0, 0);
}

/* A place of its own bytes, for the whole step if it is the object's placement. */
static int32_t place(hand *h, int32_t object, sl_tier tier)
{
    int32_t i = h->plan.n_allocations++;
    size_t bytes = object < 0 ? 256 : h->s->program.objects[object].bytes;
    h->allocations[i] = (sl_allocation){object, tier, h->top[tier], bytes, -2, -2};
    h->top[tier] += SL_ROUND_UP(bytes, (size_t) SL_ALIGN);
    return i;
}

static int32_t placement(hand *h, int32_t object, sl_tier tier)
{
    h->placement[object] = place(h, object, tier);
    h->allocations[h->placement[object]].first = -1;
    return h->placement[object];
}

static void use(hand *h, int32_t at, int32_t action)
{
    sl_allocation *p = &h->allocations[at];
    if (p->first == -2)
        p->first = action;
    p->last = action;
}

/* Every action depends on all earlier ones of other streams: what is wrong is never the order. */
static sl_action *add(hand *h, sl_action a)
{
    int32_t index = h->plan.n_actions++;
    a.first_dep = h->plan.n_deps;
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        for (int32_t i = index - 1; i >= 0 && s != (int) a.stream; i--)
            if ((int) h->actions[i].stream == s) {
                h->deps[h->plan.n_deps++] = i;
                break;
            }
    a.n_deps = h->plan.n_deps - a.first_dep;
    h->actions[index] = a;
    return &h->actions[index];
}

static void copy(hand *h, sl_stream stream, int32_t from, int32_t to)
{
    int32_t index = h->plan.n_actions;
    add(h, (sl_action){SL_ACTION_COPY, stream, .object = h->allocations[from].object, .from = from, .to = to});
    use(h, from, index);
    use(h, to, index);
}

/* `at`: the places of the operands that there are, inputs first. */
static void run(hand *h, int32_t t, bool recompute, const int32_t *at)
{
    int32_t index = h->plan.n_actions;
    sl_action *a = add(h, (sl_action){SL_ACTION_TASK, SL_STREAM_COMPUTE, .task = t, .recompute = recompute,
                                      .first_use = h->plan.n_use_allocations, .workspace = -1});
    for (int i = 0; i < REPLAY_OPERANDS; i++) {
        bool there = replay_use(&h->s->program.tasks[t], i)->object >= 0;
        h->uses[a->first_use + i] = there ? *at : -1;
        if (there)
            use(h, *at++, index);
    }
    h->plan.n_use_allocations += REPLAY_OPERANDS;
}

#define AT(...) ((const int32_t[]){__VA_ARGS__})

/* `message`: part of what the check says; NULL: the plan is good. The replay must agree. */
static void end(hand *h, const char *message)
{
    size_t budget[SL_TIER_COUNT] = {h->top[0], h->top[1]};
    h->plan.allocations = h->allocations;
    h->plan.actions = h->actions;
    h->plan.deps = h->deps;
    h->plan.use_allocations = h->uses;
    h->plan.placement = h->placement;
    for (int32_t i = 0; i < h->plan.n_allocations; i++)
        if (h->allocations[i].first == -1)
            h->allocations[i].last = h->plan.n_actions;
        else if (h->allocations[i].first == -2)
            h->allocations[i].first = h->allocations[i].last = 0;
    replay r = replay_new(&h->s->program);
    const char *fault = replay_fault(&r, &h->plan, budget);
    CHECK_MSG((fault != NULL) == (message != NULL), "%s", fault ? fault : "nothing found");
    if (message) {
        CHECK_FAILS(sl_plan_check(&h->s->program, &h->plan, budget), SL_E_INTERNAL);
        CHECK_CONTAINS(sl_error_message(), message);
    } else {
        CHECK_OK(sl_plan_check(&h->s->program, &h->plan, budget));
    }
    replay_free(&r);
    synthetic_free(h->s);
}

/* Two stores one after the other: copies between places of one tier are none. */
TEST(copies_within_a_tier)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        hand h = begin();
        int32_t w = synthetic_object(h.s, SL_CLASS_PARAMETER, 256), t = task(&h);
        synthetic_in(h.s, t, w);
        int32_t lives = placement(&h, w, (sl_tier) tier), at = place(&h, w, (sl_tier) tier);
        copy(&h, tier == SL_TIER_DEVICE ? SL_STREAM_IN : SL_STREAM_OUT, lives, at);
        if (tier == SL_TIER_HOST) {
            int32_t device = place(&h, w, SL_TIER_DEVICE);
            copy(&h, SL_STREAM_IN, at, device);
            at = device;
        }
        run(&h, t, false, AT(at));
        end(&h, "on the wrong stream or of another object");
    }
}

TEST(copies_of_nothing)
{
    hand h = begin();
    int32_t a = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256), t = task(&h);
    synthetic_out(h.s, t, a, false);
    int32_t empty = place(&h, a, SL_TIER_HOST), at = place(&h, a, SL_TIER_DEVICE);
    copy(&h, SL_STREAM_IN, empty, at);
    run(&h, t, false, AT(at));
    end(&h, "which has no content there");
}

/* The program's own fault, which no plan can mend. */
TEST(reads_before_any_write)
{
    hand h = begin();
    int32_t a = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256), t = task(&h), next = task(&h);
    synthetic_in(h.s, t, a);
    synthetic_out(h.s, next, a, false);
    int32_t at = place(&h, a, SL_TIER_DEVICE);
    run(&h, t, false, AT(at));
    run(&h, next, false, AT(at));
    end(&h, "before anything wrote it");
}

TEST(data_on_the_device)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        hand h = begin();
        int32_t data = synthetic_object(h.s, SL_CLASS_DATA, 256);
        placement(&h, data, (sl_tier) tier);
        end(&h, tier == SL_TIER_DEVICE ? "has no proper placement" : NULL);
    }
}

TEST(placements_of_their_own)
{
    for (int damage = 0; damage < 5; damage++) {
        hand h = begin();
        int32_t w = synthetic_object(h.s, SL_CLASS_PARAMETER, 256), v = synthetic_object(h.s, SL_CLASS_PARAMETER, 256);
        int32_t t = task(&h);
        synthetic_out(h.s, t, w, true);
        int32_t first = placement(&h, w, SL_TIER_DEVICE), second = placement(&h, v, SL_TIER_DEVICE);
        run(&h, t, false, AT(first));
        const char *message = NULL;
        if (damage == 1) { /* both at the same bytes */
            h.allocations[second].address = h.allocations[first].address;
            message = "overlaps the placement";
        } else if (damage == 2) { /* in another's */
            h.placement[v] = first;
            message = "has no proper placement";
        } else if (damage == 3) {
            h.placement[v] = -1;
            message = "has no proper placement";
        } else if (damage == 4) { /* a place that nobody uses, of no object */
            h.allocations[place(&h, w, SL_TIER_DEVICE)].object = -2;
            message = "malformed";
        }
        end(&h, message);
    }
}

TEST(places_of_no_object)
{
    for (int32_t object = -2; object <= 2; object++) {
        hand h = begin();
        synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
        synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
        h.allocations[place(&h, -1, SL_TIER_DEVICE)].object = object;
        end(&h, object < -1 || object > 1 ? "malformed" : NULL);
    }
}

/* A context of three slices, an activation made from the first, and two later writes. The recomputation reads the first
 * slice as it was, from wherever that still holds. */
static void recompute_from_context(size_t second, size_t third, bool old_copy, const char *message)
{
    hand h = begin();
    int32_t context = synthetic_object(h.s, SL_CLASS_CONTEXT, 3 * 256),
            a = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
    int32_t slices[3], make, reader;
    for (int i = 0; i < 3; i++) {
        slices[i] = task(&h);
        synthetic_out(h.s, slices[i], context, false);
        sl_use *out = &h.s->program.tasks[slices[i]].out[0];
        out->offset = i == 0 ? 256 : i == 1 ? second : third;
        out->type = sl_type_1d(SL_F32, 64);
        if (i == 0) {
            make = task(&h);
            synthetic_in(h.s, make, context);
            h.s->program.tasks[make].in[0].offset = 256;
            h.s->program.tasks[make].in[0].type = sl_type_1d(SL_F32, 64);
            synthetic_out(h.s, make, a, false);
        }
    }
    h.s->program.objects[context].producer = -1;
    reader = task(&h);
    synthetic_in(h.s, reader, a);
    int32_t c = place(&h, context, SL_TIER_DEVICE), old = place(&h, context, SL_TIER_HOST);
    int32_t back = place(&h, context, SL_TIER_DEVICE), a1 = place(&h, a, SL_TIER_DEVICE);
    int32_t a2 = place(&h, a, SL_TIER_DEVICE);
    run(&h, slices[0], false, AT(c));
    run(&h, make, false, AT(c, a1));
    run(&h, slices[1], false, AT(c));
    if (old_copy)
        copy(&h, SL_STREAM_OUT, c, old);
    run(&h, slices[2], false, AT(c));
    if (old_copy)
        copy(&h, SL_STREAM_IN, old, back);
    run(&h, make, true, AT(old_copy ? back : c, a2));
    run(&h, reader, false, AT(a2));
    end(&h, message);
}

TEST(recomputed_from_what_was_there)
{
    recompute_from_context(512, 0, false, NULL); /* later writes above and below */
    recompute_from_context(0, 512, false, NULL);
    recompute_from_context(512, 256, false, "again with another object"); /* the last one over it */
    recompute_from_context(256, 512, false, "again with another object");
    recompute_from_context(512, 256, true, NULL); /* but a copy is older than that */
    recompute_from_context(256, 512, true, "again with another object");
}

/* An old copy of what the task read, from before a write that it saw. */
TEST(recomputed_from_too_old)
{
    for (int fresh = 0; fresh < 2; fresh++) {
        hand h = begin();
        int32_t g = synthetic_object(h.s, SL_CLASS_GRADIENT, 256), a = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
        int32_t first = task(&h), second = task(&h), make = task(&h), reader = task(&h);
        synthetic_out(h.s, first, g, false);
        synthetic_out(h.s, second, g, true);
        synthetic_in(h.s, make, g);
        synthetic_out(h.s, make, a, false);
        synthetic_in(h.s, reader, a);
        int32_t at = place(&h, g, SL_TIER_DEVICE), old = place(&h, g, SL_TIER_HOST),
                back = place(&h, g, SL_TIER_DEVICE);
        int32_t a1 = place(&h, a, SL_TIER_DEVICE), a2 = place(&h, a, SL_TIER_DEVICE);
        run(&h, first, false, AT(at));
        if (!fresh)
            copy(&h, SL_STREAM_OUT, at, old);
        run(&h, second, false, AT(at));
        if (fresh)
            copy(&h, SL_STREAM_OUT, at, old);
        run(&h, make, false, AT(at, a1));
        copy(&h, SL_STREAM_IN, old, back);
        run(&h, make, true, AT(back, a2));
        run(&h, reader, false, AT(a2));
        end(&h, fresh ? NULL : "again with another object");
    }
}

/* A recomputation brings its own output back, not the object that it wrote a part of. */
TEST(recomputed_in_part)
{
    for (int anew = 0; anew < 2; anew++) {
        hand h = begin();
        int32_t x = synthetic_object(h.s, SL_CLASS_ACTIVATION, 512),
                y = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
        int32_t whole = task(&h), both = task(&h), reader = task(&h);
        synthetic_out(h.s, whole, x, false);
        synthetic_out(h.s, both, y, false);
        synthetic_out(h.s, both, x, false);
        h.s->program.tasks[both].out[1].type = sl_type_1d(SL_F32, 64);
        h.s->program.objects[x].producer = whole;
        synthetic_in(h.s, reader, y);
        synthetic_in(h.s, reader, x);
        int32_t x1 = place(&h, x, SL_TIER_DEVICE), x2 = place(&h, x, SL_TIER_DEVICE);
        int32_t y1 = place(&h, y, SL_TIER_DEVICE), y2 = place(&h, y, SL_TIER_DEVICE);
        run(&h, whole, false, AT(x1));
        run(&h, both, false, AT(y1, x1));
        run(&h, both, true, AT(y2, anew ? x2 : x1)); /* over what is there: the same bytes once more */
        run(&h, reader, false, AT(y2, anew ? x2 : x1));
        end(&h, anew ? "finds version -1" : NULL);
    }
}

/* An old copy is spoilt for its readers by a recomputation that writes a part of it. */
TEST(recomputed_over_an_old_copy)
{
    for (int spoilt = 0; spoilt < 2; spoilt++) {
        hand h = begin();
        int32_t x = synthetic_object(h.s, SL_CLASS_ACTIVATION, 512);
        int32_t y = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256),
                z = synthetic_object(h.s, SL_CLASS_ACTIVATION, 256);
        int32_t whole = task(&h), early = task(&h), both = task(&h), reader = task(&h);
        synthetic_out(h.s, whole, x, false);
        synthetic_in(h.s, early, x);
        synthetic_out(h.s, early, z, false);
        synthetic_out(h.s, both, y, false);
        synthetic_out(h.s, both, x, false);
        h.s->program.tasks[both].out[1].type = sl_type_1d(SL_F32, 64);
        h.s->program.objects[x].producer = whole;
        synthetic_in(h.s, reader, z);
        int32_t x1 = place(&h, x, SL_TIER_DEVICE), old = place(&h, x, SL_TIER_HOST), x2 = place(&h, x, SL_TIER_DEVICE);
        int32_t y1 = place(&h, y, SL_TIER_DEVICE), z1 = place(&h, z, SL_TIER_DEVICE), z2 = place(&h, z, SL_TIER_DEVICE);
        run(&h, whole, false, AT(x1));
        copy(&h, SL_STREAM_OUT, x1, old);
        run(&h, early, false, AT(x1, z1));
        run(&h, both, false, AT(y1, x1));
        copy(&h, SL_STREAM_IN, old, x2);
        run(&h, both, true, AT(y1, spoilt ? x2 : x1));
        run(&h, early, true, AT(x2, z2));
        run(&h, reader, false, AT(z2));
        end(&h, spoilt ? "again with another object" : NULL);
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(copies_within_a_tier);
    RUN(copies_of_nothing);
    RUN(reads_before_any_write);
    RUN(data_on_the_device);
    RUN(placements_of_their_own);
    RUN(places_of_no_object);
    RUN(recomputed_from_what_was_there);
    RUN(recomputed_from_too_old);
    RUN(recomputed_in_part);
    RUN(recomputed_over_an_old_copy);
    return test_end();
}
