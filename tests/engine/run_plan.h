/* Runs a plan on a device and compares all that outlives a step with the tasks run one after the other. */
#ifndef SL_TESTS_RUN_PLAN_H
#define SL_TESTS_RUN_PLAN_H

#include "core/pool.h"
#include "device/cpu/kernels/kernel.h"
#include "device/sim/sim.h"
#include "engine/engine.h"
#include "random_program.h"

enum { STEPS = 2 };

static inline void run_sim(sl_launch *launch)
{
    static _Alignas(256) unsigned char workspace[4 * SL_ALIGN];
    launch->workspace_bytes = (size_t) SL_ALIGN * ((size_t) launch->op % 3);
    launch->workspace = launch->workspace_bytes ? workspace : NULL;
    sl_sim_run(launch);
}

static inline void run_cpu(sl_launch *launch)
{
    static _Alignas(256) unsigned char workspace[1 << 20];
    sl_isa isa;
    CHECK_OK(sl_isa_detect(&isa));
    const sl_cpu_kernel *kernel = sl_cpu_kernel_find(launch, isa);
    launch->workspace_bytes = sizeof workspace;
    launch->workspace = workspace;
    if (kernel)
        kernel->run(launch, NULL);
    else
        sl_op(launch->op)->reference(launch);
}

/* Runs the plan STEPS times; true if all that outlives a step equals the reference. */
static inline bool plan_is_right(const sl_program *p, const sl_plan *plan, const char *device_name, uint64_t seed,
                                 const size_t arena[SL_TIER_COUNT], const test_reference *want)
{
    static float content[16 << 10];
    sl_device *device;
    sl_engine *engine;
    sl_device_config config = {.arena_bytes = {arena[0], arena[1]}, .threads = 2, .seed = seed};
    sl_engine_needs(plan, &config.max_commands, &config.max_events);
    CHECK_OK(sl_device_open(device_name, &config, &device));
    CHECK_OK(sl_engine_create(device, p, plan, &engine));
    for (int step = 0; step < STEPS; step++) {
        for (int32_t o = 0; o < p->n_objects; o++) {
            if (p->objects[o].class != SL_CLASS_DATA && !(p->objects[o].persistent && step == 0))
                continue;
            test_content(p, o, step, content);
            CHECK_OK(sl_engine_write(engine, o, 0, content, p->objects[o].bytes));
        }
        CHECK_OK(sl_engine_step(engine));
    }
    bool right = true;
    for (int32_t o = 0; o < p->n_objects; o++)
        if (p->objects[o].persistent || p->objects[o].class == SL_CLASS_RESULT) {
            CHECK_OK(sl_engine_read(engine, o, 0, content, p->objects[o].bytes));
            right &= memcmp(content, want->bytes[o], p->objects[o].bytes) == 0;
        }
    for (int tier = 0; tier < SL_TIER_COUNT; tier++)
        CHECK(sl_engine_peak_bytes(engine, (sl_tier) tier) <= arena[tier]);
    sl_engine_destroy(engine);
    sl_device_close(device);
    return right;
}

static inline test_reference reference(const sl_program *p, void (*run)(sl_launch *))
{
    test_reference want = test_reference_create(p);
    for (int step = 0; step < STEPS; step++)
        test_reference_step(&want, p, step, run);
    return want;
}

#endif
