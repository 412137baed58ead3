/*
 * Opening and closing a CUDA device: finding the GPU, its context, both arenas, streams and events; and its description for the
 * planner. Whatever depends on the machine fails here, before a step, with a message of one sentence.
 *
 * Pinning. cudaHostRegister of untouched memory takes 30 s for 40 GiB, one page fault after the other. Huge pages
 * touched by all cores first bring it to 1.5 s. With config->ahead they are touched in part by then.
 */
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/runtime/state.h"

/* Is there a GPU, and a driver and libraries that this was built for? (A cuBLASLt or cuDNN of another major version has another
 * file name: then the plugin does not load at all, which the loader says.) */
sl_status sl_cuda_find_gpu(void)
{
    int count = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    if (driver == 0)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "no usable NVIDIA GPU: no driver is installed");
    if (error == cudaErrorInsufficientDriver)
        return sl_cuda_fail(
            SL_E_DEVICE,
            "the NVIDIA driver is too old: it knows CUDA %d.%d, libsluice_cuda.so needs %d.%d; update the "
            "driver",
            driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0))
        return sl_cuda_fail(SL_E_UNSUPPORTED, "no usable NVIDIA GPU: the driver lists none");
    if (error != cudaSuccess)
        return sl_cuda_fail(SL_E_DEVICE, "the GPU cannot be used: %s", cudaGetErrorString(error));
    int major = 0, minor = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    if (major < 8)
        return sl_cuda_fail(SL_E_UNSUPPORTED,
                            "no usable NVIDIA GPU: it has compute capability %d.%d, and 8.0 or newer is needed", major,
                            minor);
    return SL_OK;
}

/* Host memory worked on by all cores, 64 MiB at a time. */
typedef struct pages {
    char *memory;
    size_t bytes, step; /* every step-th byte is written */
} pages;
#define PAGES_PIECE ((size_t) 64 << 20)

static int64_t pages_tiles(const pages *p)
{
    return (int64_t) ((p->bytes + PAGES_PIECE - 1) / PAGES_PIECE);
}

static void zero_pages(void *context, int64_t tile, int thread)
{
    (void) thread;
    const pages *p = context;
    size_t begin = (size_t) tile * PAGES_PIECE, end = begin + PAGES_PIECE < p->bytes ? begin + PAGES_PIECE : p->bytes;
    if (p->step == 1)
        memset(p->memory + begin, 0, end - begin);
    else
        for (size_t at = begin; at < end; at += p->step)
            ((volatile char *) p->memory)[at] = 0;
}

void sl_cuda_zero_host(sl_cuda *cuda, void *memory, size_t bytes)
{
    pages p = {memory, bytes, 1};
    sl_cuda_host->host_parallel(cuda->host, zero_pages, &p, pages_tiles(&p));
}

#define GIB(bytes) ((double) (bytes) / 1073741824.0)

static sl_status open_memory(sl_cuda *cuda, const sl_device_config *config)
{
    memcpy(cuda->arena_bytes, config->arena_bytes, sizeof cuda->arena_bytes);
    SL_CUDA(cudaMemGetInfo(&cuda->free_before, &cuda->total));
    size_t bytes = cuda->arena_bytes[SL_TIER_DEVICE];
    cudaError_t error = bytes > cuda->free_before ? cudaErrorMemoryAllocation : cudaSuccess;
    if (bytes && error == cudaSuccess)
        error = cudaMalloc(&cuda->arena[SL_TIER_DEVICE], bytes);
    if (error == cudaErrorMemoryAllocation)
        return sl_cuda_fail(
            SL_E_DOES_NOT_FIT,
            "the plan takes %.1f GiB of device memory but only %.1f of %s's %.1f GiB are free: wait for "
            "what else uses the GPU (nvidia-smi tells), or lower --device-mem",
            GIB(bytes), GIB(cuda->free_before), cuda->name, GIB(cuda->total));
    if (error != cudaSuccess)
        return sl_cuda_fail(SL_E_DEVICE, "cudaMalloc: %s", cudaGetErrorString(error));
    bytes = cuda->arena_bytes[SL_TIER_HOST];
    if (!bytes)
        return SL_OK;
    sl_status status = sl_cuda_host->pages_take(config->ahead, bytes, &cuda->arena[SL_TIER_HOST]);
    if (status != SL_OK)
        return status;
    pages p = {cuda->arena[SL_TIER_HOST], bytes, 4096};
    sl_cuda_host->host_parallel(cuda->host, zero_pages, &p, pages_tiles(&p));
    error = cudaHostRegister(cuda->arena[SL_TIER_HOST], bytes, cudaHostRegisterDefault);
    if (error != cudaSuccess)
        return sl_cuda_fail(SL_E_MEMORY,
                            "%.1f GiB of host memory cannot be pinned for the GPU (%s): lower --host-mem, or raise the "
                            "limit of locked memory (ulimit -l)",
                            GIB(bytes), cudaGetErrorString(error));
    cuda->registered = true;
    return SL_OK;
}

static sl_status open_streams(sl_cuda *cuda, const sl_device_config *config)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        SL_CUDA(cudaStreamCreateWithFlags(&cuda->stream[s], cudaStreamNonBlocking));
        SL_CUDA(cudaEventCreateWithFlags(&cuda->join[s], cudaEventDisableTiming));
    }
    SL_CUDA(cudaEventCreateWithFlags(&cuda->fork, cudaEventDisableTiming));
    SL_CUDA(cudaStreamCreateWithFlags(&cuda->side, cudaStreamNonBlocking));
    SL_CUDA(cudaEventCreateWithFlags(&cuda->side_fork, cudaEventDisableTiming));
    SL_CUDA(cudaEventCreateWithFlags(&cuda->side_join, cudaEventDisableTiming));
    cuda->events = calloc((size_t) (config->max_events ? config->max_events : 1), sizeof *cuda->events);
    cuda->host_tasks = calloc((size_t) (config->max_commands ? config->max_commands : 1), sizeof *cuda->host_tasks);
    cuda->max_timings = SL_STREAM_COUNT * config->max_commands;
    cuda->timings = calloc((size_t) (cuda->max_timings ? cuda->max_timings : 1), sizeof *cuda->timings);
    SL_CUDA(cudaEventCreate(&cuda->began));
    if (!cuda->events || !cuda->host_tasks || !cuda->timings)
        return sl_cuda_fail(SL_E_MEMORY, "no memory for %lld events", (long long) config->max_events);
    cuda->max_host_tasks = config->max_commands;
    for (; cuda->max_events < config->max_events; cuda->max_events++)
        SL_CUDA(cudaEventCreateWithFlags(&cuda->events[cuda->max_events], cudaEventDisableTiming));
    return SL_OK;
}

/* The first call that makes a context meets what other processes do with the GPU. */
static sl_status make_context(void)
{
    cudaError_t error = cudaSetDevice(0);
    if (error == cudaSuccess)
        error = cudaFree(NULL); /* older drivers make the context here */
    switch (error) {
    case cudaSuccess:
        return SL_OK;
    case cudaErrorDevicesUnavailable:
        return sl_cuda_fail(SL_E_DEVICE, "the GPU is busy: another process has it for itself; wait for it, or choose "
                                         "another GPU with CUDA_VISIBLE_DEVICES");
    case cudaErrorMemoryAllocation:
        return sl_cuda_fail(SL_E_DOES_NOT_FIT, "the GPU's memory is full: not even a context fits beside what other "
                                               "processes hold (nvidia-smi tells)");
    default:
        return sl_cuda_fail(SL_E_DEVICE, "the GPU cannot be used: %s", cudaGetErrorString(error));
    }
}

static sl_status describe(sl_cuda *cuda)
{
    struct cudaDeviceProp p;
    SL_TRY(make_context());
    SL_CUDA(cudaGetDeviceProperties(&p, 0));
    const char *tf32 = getenv("SLUICE_TF32"), *sync = getenv("SLUICE_CUDA_SYNC");
    cuda->sync = sync && strcmp(sync, "1") == 0;
    int clock_khz = 0, memory_khz = 0;
    cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0);
    cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, 0);
    cuda->info = (sl_cuda_info){
        .multiprocessors = p.multiProcessorCount,
        .capability = 10 * p.major + p.minor,
        .clock_hz = 1e3 * clock_khz,
        .memory_bytes_per_s = 2e3 * memory_khz * p.memoryBusWidth / 8, /* double data rate */
        .l2_bytes = (size_t) p.l2CacheSize,
        .shared_bytes = p.sharedMemPerBlockOptin,
        .tf32 = tf32 && strcmp(tf32, "1") == 0,
    };
    snprintf(cuda->name, sizeof cuda->name, "%s", p.name);
    snprintf(cuda->numerics, sizeof cuda->numerics, "cuda %s sm_%d, cuBLASLt %zu, cuDNN %zu%s", cuda->name,
             cuda->info.capability, cublasLtGetVersion(), cudnnGetVersion(), cuda->info.tf32 ? ", TF32" : "");
    return SL_OK;
}

void sl_cuda_close(sl_device *device)
{
    sl_cuda *cuda = (sl_cuda *) device;
    if (!cuda)
        return;
    cudaDeviceSynchronize();
    for (int i = 0; i < SL_CUDA_LISTS; i++)
        if (cuda->lists[i].graph)
            cudaGraphExecDestroy(cuda->lists[i].graph);
    while (cuda->cache) {
        sl_cuda_cached *next = cuda->cache->next;
        cuda->cache->destroy(cuda->cache);
        cuda->cache = next;
    }
    if (cuda->dnn)
        cudnnDestroy(cuda->dnn);
    if (cuda->blas)
        cublasLtDestroy(cuda->blas);
    for (int64_t i = 0; i < cuda->max_events; i++)
        cudaEventDestroy(cuda->events[i]);
    for (int s = 0; s < SL_STREAM_COUNT; s++) {
        if (cuda->stream[s])
            cudaStreamDestroy(cuda->stream[s]);
        if (cuda->join[s])
            cudaEventDestroy(cuda->join[s]);
    }
    if (cuda->fork)
        cudaEventDestroy(cuda->fork);
    if (cuda->side)
        cudaStreamDestroy(cuda->side);
    if (cuda->side_fork)
        cudaEventDestroy(cuda->side_fork);
    if (cuda->side_join)
        cudaEventDestroy(cuda->side_join);
    if (cuda->began)
        cudaEventDestroy(cuda->began);
    for (int64_t i = 0; cuda->timings && i < cuda->max_timings && cuda->timings[i].start; i++) {
        cudaEventDestroy(cuda->timings[i].start);
        cudaEventDestroy(cuda->timings[i].end);
    }
    free(cuda->timings);
    if (cuda->registered)
        cudaHostUnregister(cuda->arena[SL_TIER_HOST]);
    if (cuda->arena[SL_TIER_HOST])
        sl_cuda_host->pages_unmap(cuda->arena[SL_TIER_HOST], cuda->arena_bytes[SL_TIER_HOST]);
    cudaFree(cuda->arena[SL_TIER_DEVICE]);
    sl_cuda_host->host_close(cuda->host);
    free(cuda->events);
    free(cuda->host_tasks);
    free(cuda);
}

sl_status sl_cuda_open(const sl_device_config *config, sl_device **device)
{
    sl_cuda *cuda = calloc(1, sizeof *cuda);
    if (!cuda)
        return sl_cuda_fail(SL_E_MEMORY, "no memory for a device");
    cuda->base.class = &sl_cuda_class;
    sl_status status = describe(cuda);
    if (status == SL_OK)
        status = sl_cuda_host->host_open(config->threads, &cuda->host);
    if (status == SL_OK)
        status = open_memory(cuda, config);
    if (status == SL_OK)
        status = open_streams(cuda, config);
    if (status == SL_OK && cublasLtCreate(&cuda->blas) != CUBLAS_STATUS_SUCCESS)
        status = sl_cuda_fail(SL_E_DEVICE, "cuBLASLt could not be started on %s", cuda->name);
    if (status != SL_OK) {
        sl_cuda_close(&cuda->base);
        return status;
    }
    *device = &cuda->base;
    return SL_OK;
}

/* A built-in profile of the same chip where there is one; else what clock and multiprocessors promise, with the shares that
 * Ada and Ampere cards usually reach. */
void sl_cuda_hardware(sl_device *device, sl_hardware *hardware)
{
    static const struct {
        const char *name, *profile;
    } known[] = {{"H200", "h200"},        {"H100", "h100"},        {"A100", "a100"},
                 {"RTX 5090", "rtx5090"}, {"RTX 4090", "rtx4090"}, {"RTX 3090", "rtx3090"}};
    sl_cuda *cuda = (sl_cuda *) device;
    const sl_cuda_info *info = &cuda->info;
    double clocks = (double) info->multiprocessors * info->clock_hz;
    *hardware = (sl_hardware){
        .peak_flops = {[SL_F32] = clocks * (info->capability == 80 ? 128 : 256),
                       [SL_BF16] = clocks * (info->capability == 80        ? 2048
                                             : info->capability == 90      ? 4096
                                             : info->capability / 10 == 10 ? 8192
                                                                           : 512)},
        .matmul_efficiency = {[SL_F32] = 0.75, [SL_BF16] = 0.75},
        .attention_efficiency = {[SL_F32] = {0.6, 0.5}, [SL_BF16] = {0.6, 0.5}},
        .memory_bandwidth = {info->memory_bytes_per_s * 0.9, 60e9},
        .link_bandwidth = {24e9, 24e9},
        .link_bandwidth_both = 21e9,
        .link_latency_s = 10e-6,
        .launch_latency_s = 4e-6,
        .host_optimizer_bandwidth = 50e9,
        .attention_keeps_scores = info->capability != 90,
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(cuda->name, known[i].name))
            sl_cuda_host->hardware_find(known[i].profile, hardware);
    snprintf(hardware->name, sizeof hardware->name, "%.63s", cuda->name);
    hardware->memory_bytes[SL_TIER_DEVICE] = cuda->total;
    hardware->memory_bytes[SL_TIER_HOST] = sl_cuda_host->memory_bytes();
}

/* All that is taken and not the arena; other processes' memory counts too, where there are any. */
size_t sl_cuda_overhead(sl_device *device)
{
    sl_cuda *cuda = (sl_cuda *) device;
    size_t available = 0, total = 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess || total - available < cuda->arena_bytes[SL_TIER_DEVICE])
        return 0;
    return total - available - cuda->arena_bytes[SL_TIER_DEVICE];
}
