#include "bench/roofline.h"
#include "ops/scale.h"

#include <math.h>

/* The widest square of 8192 or less whose three operands fit what is left, with room for a workspace. */
static int64_t widest(const sl_rig *rig, sl_dtype dtype)
{
    size_t workspace = (size_t) 64 << 20, left = rig->bytes - rig->used;
    double elements = left > workspace ? (double) (left - workspace) / (3 * (double) sl_dtype_bytes(dtype)) : 0;
    return SL_MAX(512, SL_MIN((int64_t) sqrt(elements) / 256 * 256, 8192));
}

sl_status sl_roofline_product(sl_rig *rig, sl_dtype dtype, double guess, double seconds, double *best, int64_t *side)
{
    int64_t n = (int64_t) cbrt(guess * seconds / 2) / 256 * 256, most = widest(rig, dtype);
    for (int i = 0; i < 2; i++, n = n / 512 * 256) {
        sl_launch launch;
        sl_stats stats;
        int64_t d = SL_MAX(512, SL_MIN(n, most));
        size_t used = rig->used;
        SL_TRY(sl_rig_matmul(rig, dtype, d, d, d, &launch));
        SL_TRY(sl_rig_time(rig, &launch, 1, 2, 20, 25 * seconds, &stats));
        double rate = 2.0 * (double) d * (double) d * (double) d / (rig->timer.n_warmups ? stats.median : stats.min);
        rig->used = used;
        if (rate > *best)
            *best = rate, *side = d;
    }
    return SL_OK;
}

sl_status sl_roofline_stream(sl_rig *rig, sl_op_id op, size_t bytes, double seconds, double *rate)
{
    int64_t columns = 1024, rows = (int64_t) (bytes / 4) / columns;
    sl_launch launch = {.op = op};
    sl_stats stats;
    size_t used = rig->used;
    sl_scale_set(&launch.attrs)->value = 0.5f;
    if (op != SL_OP_SCALE)
        launch.attrs = (sl_attrs){.raw = {0}};
    launch.in[0].type = launch.out[0].type = sl_type_2d(SL_F32, rows, columns);
    if (op == SL_OP_ADD)
        launch.in[1].type = launch.in[0].type;
    sl_work work;
    SL_TRY(sl_rig_place(rig, &launch));
    SL_TRY(sl_rig_fill(rig, &launch));
    SL_TRY(sl_rig_time(rig, &launch, 1, 2, 50, seconds, &stats));
    sl_op(op)->work(&launch, &work);
    *rate = (work.read_bytes + work.write_bytes) / stats.median;
    rig->used = used;
    return SL_OK;
}

sl_status sl_roofline_measure(const char *device, int threads, bool quick, sl_roofline *roofline)
{
    sl_rig rig;
    int64_t side;
    double copy = 0, triad = 0, seconds = quick ? 0.01 : 0.04;
    *roofline = (sl_roofline){0};
    SL_TRY(sl_rig_open_warm(device, threads, quick ? (size_t) 512 << 20 : (size_t) 1 << 30, &rig));
    sl_status status = SL_OK;
    for (int dtype = SL_F32; dtype <= SL_BF16 && status == SL_OK; dtype++)
        status = sl_roofline_product(&rig, (sl_dtype) dtype, rig.hardware.peak_flops[dtype], seconds,
                                     &roofline->flops[dtype], &side);
    size_t bytes = rig.hardware.shared_cores && quick ? (size_t) 64 << 20 : (size_t) 128 << 20;
    if (status == SL_OK)
        status = sl_roofline_stream(&rig, SL_OP_SCALE, bytes, 10 * seconds, &copy);
    if (status == SL_OK)
        status = sl_roofline_stream(&rig, SL_OP_ADD, bytes, 10 * seconds, &triad);
    sl_rig_close(&rig);
    roofline->bytes = SL_MAX(copy, triad);
    return status;
}

double sl_roofline_seconds(const sl_roofline *r, sl_dtype dtype, const sl_work *work)
{
    return fmax(work->hardware_flops / r->flops[dtype], (work->read_bytes + work->write_bytes) / r->bytes);
}
