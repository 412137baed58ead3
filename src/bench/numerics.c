#include "bench/numerics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bf16.h"
#include "core/mem.h"

enum { SIDE = 32, DEEP = 4096 };

static sl_status product(sl_rig *rig, sl_dtype dtype, int64_t depth, const void *a, const void *b, void *c)
{
    sl_launch launch;
    double seconds;
    size_t used = rig->used;
    SL_TRY(sl_rig_matmul(rig, dtype, SIDE, SIDE, depth, &launch));
    SL_TRY(sl_rig_write(rig, &launch.in[0], a));
    SL_TRY(sl_rig_write(rig, &launch.in[1], b));
    SL_TRY(sl_rig_run(rig, &launch, 1, &seconds));
    SL_TRY(sl_rig_read(rig, &launch.out[0], c));
    rig->used = used;
    return SL_OK;
}

/* (1 + 2^-k) times one, everything else zero: the result has the small part if k bits got through. */
static sl_status count_bits(sl_rig *rig, int *bits)
{
    float a[SIDE * SIDE], b[SIDE * SIDE], c[SIDE * SIDE];
    for (int k = 23; k > 0; k--) {
        for (int i = 0; i < SIDE * SIDE; i++) {
            a[i] = i % (SIDE + 1) == 0 ? 1 + ldexpf(1, -k) : 0;
            b[i] = i % (SIDE + 1) == 0 ? 1 : 0;
        }
        SL_TRY(product(rig, SL_F32, SIDE, a, b, c));
        *bits = k;
        if (c[0] == a[0])
            return SL_OK;
    }
    *bits = 0;
    return SL_OK;
}

static sl_status count_ones(sl_rig *rig, double *ones_in_bf16)
{
    sl_bf16 *ones, c[SIDE * SIDE] = {0};
    SL_TRY(sl_alloc(&ones, SIDE * DEEP, sizeof *ones));
    for (int64_t i = 0; i < SIDE * DEEP; i++)
        ones[i] = sl_f32_to_bf16(1);
    sl_status status = product(rig, SL_BF16, DEEP, ones, ones, c);
    *ones_in_bf16 = (double) sl_bf16_to_f32(c[0]);
    sl_free(ones);
    return status;
}

sl_status sl_numerics_probe(sl_rig *rig, sl_numerics *numerics)
{
    *numerics = (sl_numerics){0};
    SL_TRY(count_bits(rig, &numerics->f32_bits));
    return count_ones(rig, &numerics->bf16_ones);
}

const char *sl_numerics_f32(const sl_numerics *n)
{
    return n->f32_bits >= 23   ? "f32: all 23 bits count"
           : n->f32_bits == 10 ? "TF32: 10 bits count"
           : n->f32_bits == 7  ? "bf16: 7 bits count"
                               : "fewer bits than f32";
}

const char *sl_numerics_sums(const sl_numerics *n)
{
    return n->bf16_ones == DEEP   ? "f32 (or as good)"
           : n->bf16_ones == 256  ? "bf16: reduced"
           : n->bf16_ones == 2048 ? "f16: reduced"
                                  : "something else";
}

void sl_tf32_switch(bool on)
{
    if (on)
        setenv("SLUICE_TF32", "1", 1);
    else
        unsetenv("SLUICE_TF32");
}

/* A device says in its numerics what fixes bits, so one that knows the switch says something else with it. */
sl_status sl_tf32_offered(const char *device, bool *offered)
{
    char said[2][160];
    sl_device_config none = {.threads = 1, .max_commands = 1, .max_events = 1};
    sl_status status = SL_OK;
    *offered = false;
    if (getenv("SLUICE_TF32"))
        return SL_OK;
    for (int on = 0; on < 2 && status == SL_OK; on++) {
        sl_device *bare;
        sl_tf32_switch(on);
        status = sl_device_open(device, &none, &bare);
        if (status == SL_OK) {
            snprintf(said[on], sizeof said[on], "%s", bare->class->numerics(bare));
            sl_device_close(bare);
        }
        sl_tf32_switch(false);
    }
    *offered = status == SL_OK && strcmp(said[0], said[1]) != 0;
    return status;
}
