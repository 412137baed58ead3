/* The sim device itself: orders, virtual time, spoiled memory, deadlocks. */
#include "core/mem.h"
#include "device/sim/sim.h"
#include "ops/scale.h"
#include "test.h"

enum { ARENA = 1 << 16, BLOCK = 4096 };

static sl_device *open_sim(uint64_t seed)
{
    sl_device *device;
    sl_device_config config = {.arena_bytes = {ARENA, ARENA}, .max_commands = 64, .max_events = 64, .seed = seed};
    CHECK_OK(sl_device_open("sim", &config, &device));
    return device;
}

static unsigned char *at(sl_device *device, sl_tier tier, int block)
{
    return (unsigned char *) device->class->arena(device, tier) + block * BLOCK;
}

static sl_launch scale(unsigned char *x, unsigned char *y)
{
    sl_type type = sl_type_1d(SL_F32, BLOCK / 4);
    sl_launch launch = {.op = SL_OP_SCALE, .in = {{x, type}}, .out = {{y, type}}};
    sl_scale_set(&launch.attrs)->value = 2;
    return launch;
}

/* in -> compute -> out, twice over the same memory; each event can be left out. Returns whether the result is right. */
static bool chain_is_right(uint64_t seed, int left_out)
{
    sl_device *d = open_sim(seed);
    const sl_device_class *c = d->class;
    sl_launch launch = scale(at(d, SL_TIER_DEVICE, 0), at(d, SL_TIER_DEVICE, 1));
    unsigned char wants[2][BLOCK], got[BLOCK];
    size_t bytes = c->workspace(d, &launch, SL_STREAM_COMPUTE);
    launch.workspace = bytes ? at(d, SL_TIER_DEVICE, 2) : NULL;
    launch.workspace_bytes = bytes;
    for (int i = 0; i < 2; i++) {
        unsigned char content[BLOCK];
        memset(content, i + 1, sizeof content);
        CHECK_OK(c->write(d, SL_TIER_HOST, at(d, SL_TIER_HOST, i), content, BLOCK));
        sl_launch plain = scale(at(d, SL_TIER_HOST, i), wants[i]);
        sl_sim_run(&plain);
    }
    CHECK_OK(c->step_begin(d));
    for (int i = 0; i < 2; i++) {
        int e = 3 * i;          /* events: data is in, result is there, result is out */
        if (i && left_out != 0) /* the input may be overwritten once compute has read it */
            CHECK_OK(c->wait(d, SL_STREAM_IN, e - 2));
        CHECK_OK(c->copy(d, SL_STREAM_IN, at(d, SL_TIER_DEVICE, 0), at(d, SL_TIER_HOST, i), BLOCK, NULL));
        CHECK_OK(c->record(d, SL_STREAM_IN, e));
        if (left_out != 1)
            CHECK_OK(c->wait(d, SL_STREAM_COMPUTE, e));
        if (i && left_out != 2) /* the result may be overwritten once it is out */
            CHECK_OK(c->wait(d, SL_STREAM_COMPUTE, e - 1));
        CHECK_OK(c->launch(d, SL_STREAM_COMPUTE, &launch, NULL));
        CHECK_OK(c->record(d, SL_STREAM_COMPUTE, e + 1));
        if (left_out != 3)
            CHECK_OK(c->wait(d, SL_STREAM_OUT, e + 1));
        CHECK_OK(c->copy(d, SL_STREAM_OUT, at(d, SL_TIER_HOST, 4 + i), at(d, SL_TIER_DEVICE, 1), BLOCK, NULL));
        CHECK_OK(c->record(d, SL_STREAM_OUT, e + 2));
    }
    CHECK_OK(c->step_end(d));
    bool right = true;
    for (int i = 0; i < 2; i++) {
        CHECK_OK(c->read(d, SL_TIER_HOST, got, at(d, SL_TIER_HOST, 4 + i), BLOCK));
        right &= memcmp(got, wants[i], BLOCK) == 0;
    }
    sl_device_close(d);
    return right;
}

TEST(every_order_that_events_allow_is_right)
{
    for (uint64_t seed = 0; seed < 200; seed++)
        CHECK_MSG(chain_is_right(seed, -1), "seed %d", (int) seed);
}

TEST(every_missing_event_is_found)
{
    for (int left_out = 0; left_out < 4; left_out++) {
        int wrong = 0;
        for (uint64_t seed = 0; seed < 60; seed++)
            wrong += !chain_is_right(seed, left_out);
        CHECK_MSG(wrong >= 5, "wait %d left out: noticed by %d of 60 seeds", left_out, wrong);
    }
}

TEST(a_seed_repeats_itself)
{
    for (uint64_t seed = 0; seed < 20; seed++)
        CHECK(chain_is_right(seed, 3) == chain_is_right(seed, 3));
}

TEST(results_depend_on_everything_a_launch_is)
{
    unsigned char x[BLOCK] = {1}, first[BLOCK], other[BLOCK];
    sl_launch launch = scale(x, first);
    sl_sim_run(&launch);
    launch.out[0].data = other;
    sl_sim_run(&launch);
    CHECK(memcmp(first, other, BLOCK) == 0); /* the address does not count */
    sl_scale_set(&launch.attrs)->value = 3;
    sl_sim_run(&launch);
    CHECK(memcmp(first, other, BLOCK) != 0);
    sl_scale_set(&launch.attrs)->value = 2;
    launch.accumulate = 1;
    memset(other, 7, BLOCK);
    sl_sim_run(&launch);
    unsigned char once[BLOCK];
    memcpy(once, other, BLOCK);
    CHECK(memcmp(first, other, BLOCK) != 0);
    memset(other, 8, BLOCK); /* accumulating reads what was there */
    sl_sim_run(&launch);
    CHECK(memcmp(once, other, BLOCK) != 0);
    launch.accumulate = 0;
    x[BLOCK - 1] = 9;
    sl_sim_run(&launch);
    CHECK(memcmp(first, other, BLOCK) != 0);
}

TEST(a_disturbed_launch_shows_it)
{
    unsigned char x[BLOCK] = {1}, want[BLOCK], y[BLOCK];
    _Alignas(256) unsigned char workspace[512];
    sl_launch launch = scale(x, want);
    sl_sim_run(&launch);
    launch.out[0].data = y;
    launch.workspace = workspace, launch.workspace_bytes = sizeof workspace;
    uint64_t begun = sl_sim_launch_begin(&launch);
    CHECK(memcmp(y, want, BLOCK) != 0); /* not there yet */
    sl_sim_launch_end(&launch, begun);
    CHECK(memcmp(y, want, BLOCK) == 0);
    begun = sl_sim_launch_begin(&launch);
    workspace[511] ^= 1;
    sl_sim_launch_end(&launch, begun);
    CHECK(memcmp(y, want, BLOCK) != 0);
    begun = sl_sim_launch_begin(&launch);
    x[5] ^= 1;
    sl_sim_launch_end(&launch, begun);
    CHECK(memcmp(y, want, BLOCK) != 0);
}

TEST(time_is_virtual_and_independent_of_the_order)
{
    sl_span first[3] = {{0}};
    for (uint64_t seed = 0; seed < 20; seed++) {
        sl_device *d = open_sim(seed);
        const sl_device_class *c = d->class;
        sl_span spans[3];
        CHECK_OK(c->step_begin(d));
        CHECK_OK(c->copy(d, SL_STREAM_IN, at(d, SL_TIER_DEVICE, 0), at(d, SL_TIER_HOST, 0), BLOCK, &spans[0]));
        CHECK_OK(c->record(d, SL_STREAM_IN, 0));
        CHECK_OK(c->copy(d, SL_STREAM_OUT, at(d, SL_TIER_HOST, 1), at(d, SL_TIER_DEVICE, 1), BLOCK, &spans[1]));
        CHECK_OK(c->wait(d, SL_STREAM_OUT, 0));
        CHECK_OK(c->copy(d, SL_STREAM_OUT, at(d, SL_TIER_HOST, 2), at(d, SL_TIER_DEVICE, 0), BLOCK, &spans[2]));
        CHECK_OK(c->step_end(d));
        CHECK(spans[0].start == 0 && spans[1].start == 0 && spans[2].start >= spans[0].end);
        if (seed == 0)
            memcpy(first, spans, sizeof first);
        CHECK(memcmp(first, spans, sizeof first) == 0);
        sl_device_close(d);
    }
}

TEST(commands_that_break_the_contract_are_named)
{
    sl_device *d = open_sim(1);
    CHECK_OK(d->class->step_begin(d));
    CHECK_OK(d->class->record(d, SL_STREAM_IN, 17));
    CHECK_FAILS(d->class->record(d, SL_STREAM_OUT, 17), SL_E_INTERNAL);
    CHECK_CONTAINS(sl_error_message(), "stream out records event 17 a second time");
    CHECK_FAILS(d->class->step_end(d), SL_E_INTERNAL);
    CHECK_OK(d->class->step_begin(d));
    CHECK_FAILS(d->class->wait(d, SL_STREAM_OUT, 17), SL_E_INTERNAL); /* the last step's record does not count */
    CHECK_CONTAINS(sl_error_message(), "stream out waits for event 17");
    CHECK_FAILS(d->class->step_end(d), SL_E_INTERNAL);
    CHECK_OK(d->class->step_begin(d)); /* and nothing of it is left */
    CHECK_OK(d->class->step_end(d));
    CHECK_OK(d->class->step_begin(d));
    CHECK_FAILS(d->class->copy(d, SL_STREAM_IN, at(d, SL_TIER_DEVICE, 15), at(d, SL_TIER_HOST, 0), 2 * BLOCK, NULL),
                SL_E_INTERNAL);
    CHECK_FAILS(d->class->step_end(d), SL_E_INTERNAL);
    sl_device_close(d);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(every_order_that_events_allow_is_right);
    RUN(every_missing_event_is_found);
    RUN(a_seed_repeats_itself);
    RUN(results_depend_on_everything_a_launch_is);
    RUN(a_disturbed_launch_shows_it);
    RUN(time_is_virtual_and_independent_of_the_order);
    RUN(commands_that_break_the_contract_are_named);
    return test_end();
}
