/* Pixels as activations, a channel of a sample at a time: one fma and one rounding per element, so the bits are the reference's. */
#include "ops/image.h"
#include "device/cpu/kernels/kernel.h"
#include "device/cpu/kernels/tiles.h"
#include "device/cpu/simd/simd.h"

typedef struct image_job {
    const void *x;
    void *y;
    const struct sl_image_attrs *attrs;
    int64_t planes, pixels; /* planes: channels of all samples */
    int channels;
    bool bytes, bf16;
} image_job;

SL_INLINE void run_plane(const image_job *job, int64_t plane, bool bytes, bool bf16)
{
    const vf scale = vf_set1(job->attrs->scale[plane % job->channels]);
    const vf bias = vf_set1(job->attrs->bias[plane % job->channels]);
    const int64_t end = (plane + 1) * job->pixels;
    for (int64_t i = plane * job->pixels; i < end; i += VF_LANES) {
        const int lanes = (int) SL_MIN(VF_LANES, end - i);
        int32_t wide[VF_LANES] = {0};
        for (int j = 0; bytes && j < lanes; j++)
            wide[j] = ((const uint8_t *) job->x)[i + j];
        const vf x = bytes ? vi_to_vf(vi_load(wide)) : vf_load((const float *) job->x + i, lanes);
        vf_put(job->y, i, vf_fma(x, scale, bias), lanes, bf16);
    }
}

static void run_tile(void *context, int64_t tile, int thread)
{
    (void) thread;
    const image_job *job = context;
    const int64_t planes = tile_rows(job->pixels);
    for (int64_t plane = tile * planes; plane < SL_MIN((tile + 1) * planes, job->planes); plane++)
        if (job->bytes)
            job->bf16 ? run_plane(job, plane, true, true) : run_plane(job, plane, true, false);
        else
            job->bf16 ? run_plane(job, plane, false, true) : run_plane(job, plane, false, false);
}

static void run(const sl_launch *launch, sl_pool *pool)
{
    const sl_type *type = &launch->in[0].type;
    image_job job = {
        .x = launch->in[0].data,
        .y = launch->out[0].data,
        .attrs = sl_image_attrs(&launch->attrs),
        .pixels = type->dim[type->rank - 1],
        .channels = type->rank == 3 ? (int) type->dim[1] : 1,
        .bytes = type->dtype == SL_U8,
        .bf16 = launch->out[0].type.dtype == SL_BF16,
    };
    job.planes = type->dim[0] * job.channels;
    sl_pool_run(pool, run_tile, &job, tile_count(job.planes, tile_rows(job.pixels)));
}

SL_CPU_KERNEL(image, SL_OP_IMAGE, .run = run);
