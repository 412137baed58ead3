/*
 * The CUDA device behind the contract: one cudaMalloc of exactly the device budget, one registered host arena, four streams,
 * events. Kernels come from kernels.def; the HOST stream runs the CPU device's kernels through host functions, so that the
 * optimizer beside host memory gives the same bits as everywhere.
 *
 * Recording. The engine issues the same commands every step, with the same addresses. Where issuing them takes a good part of
 * the step (small models), the third step of a list is captured into a CUDA graph while it is issued, and from then on a step is one
 * graph launch: the GPU never waits for the CPU's issue loop. Long steps are issued plainly for good: the loop runs far ahead
 * anyway, and a graph of tens of thousands of copies and kernels keeps their order less well than streams do (8B at 24 GiB: 4 %
 * slower). The first step prepares libraries' plans, which may not happen in a capture; the second one is timed.
 *
 * Errors. A kernel that reads a wrong address fails long after it was issued, and takes the whole context with it: nothing can be
 * asked any more, so without help a message can only name the step. With SLUICE_CUDA_SYNC=1 the device waits after each command, and
 * the launch that fails is the one that did it. (Progress written behind each task would cost every step for the sake of none.)
 *
 * Pinning. cudaHostRegister of memory nobody touched takes 30 s for 40 GiB, one page fault after the other. Huge pages touched
 * by all cores first bring it to 1.5 s.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/cuda/choices.h"
#include "device/cuda/cuda.h"
#include "device/cuda/nvtx.h"
#include "device/plugin.h"

static const sl_plugin_host *sl_cuda_host; /* set once by sluice_plugin() */
sl_status (*sl_cuda_fail)(sl_status status, const char *format, ...);

#define LAUNCH_BOUND 0.2 /* of a step's time spent issuing it */
enum { TIMED_STEPS = 2 };

#define SL_CUDA_LISTS 4 /* command lists with a recording: training and validation, twice over */

typedef struct recording {
    uint64_t list;     /* 0: free */
    int64_t steps;     /* issued plainly so far */
    bool launch_bound; /* found in the second step */
    cudaGraphExec_t graph;
} recording;

/* A host-stream launch waiting to run inside a stream. */
typedef struct host_task {
    sl_cuda *cuda;
    const sl_launch *launch;
} host_task;

/* When a command of a plainly issued step ran: events around it, read at the step's end. A replayed step keeps its spans. */
typedef struct timing {
    cudaEvent_t start, end;
    sl_span *span;
} timing;

struct sl_cuda {
    sl_device base;
    sl_cuda_info info;
    char name[64], numerics[96];
    void *arena[SL_TIER_COUNT];
    size_t arena_bytes[SL_TIER_COUNT];
    bool registered;
    cudaStream_t stream[SL_STREAM_COUNT];
    cudaEvent_t *events, fork, join[SL_STREAM_COUNT];
    cudaStream_t side; /* for kernels side by side within a launch */
    cudaEvent_t side_fork, side_join;
    int64_t max_events, max_host_tasks, n_host_tasks;
    host_task *host_tasks;
    timing *timings;
    int64_t n_timings, max_timings;
    cudaEvent_t began;
    cublasLtHandle_t blas;
    cudnnHandle_t dnn;
    sl_cuda_cached *cache;
    void *host;
    recording lists[SL_CUDA_LISTS], *current;
    bool capturing, replaying;
    bool spoilt;    /* a command of the capture could not be issued */
    bool sync;      /* SLUICE_CUDA_SYNC=1: wait after each command, so that what fails is what is reported */
    double began_s; /* host clock at step_begin */
    size_t free_before, total;
};

#define SL_CUDA_KERNEL(ID, name) extern const sl_cuda_kernel sl_cuda_##name;
#include "device/cuda/kernels.def"
#undef SL_CUDA_KERNEL

const sl_cuda_kernel *sl_cuda_kernel_find(sl_op_id op)
{
    switch (op) {
#define SL_CUDA_KERNEL(ID, name) \
    case SL_OP_##ID:             \
        return &sl_cuda_##name;
#include "device/cuda/kernels.def"
#undef SL_CUDA_KERNEL
    default:
        return NULL;
    }
}

const sl_cuda_info *sl_cuda_get_info(sl_cuda *cuda)
{
    return &cuda->info;
}

cublasLtHandle_t sl_cuda_blas(sl_cuda *cuda)
{
    return cuda->blas;
}

const char *sl_cuda_machine(sl_cuda *cuda)
{
    return cuda->numerics;
}

bool sl_cuda_has_no_arena(sl_cuda *cuda)
{
    return cuda->arena_bytes[SL_TIER_DEVICE] == 0;
}

sl_status sl_cuda_dnn(sl_cuda *cuda, cudaStream_t stream, cudnnHandle_t *handle)
{
    if (!cuda->dnn)
        SL_CUDNN(cudnnCreate(&cuda->dnn));
    SL_CUDNN(cudnnSetStream(cuda->dnn, stream));
    *handle = cuda->dnn;
    return SL_OK;
}

sl_status sl_cuda_fork(sl_cuda *cuda, cudaStream_t stream, cudaStream_t *side)
{
    SL_CUDA(cudaEventRecord(cuda->side_fork, stream));
    SL_CUDA(cudaStreamWaitEvent(cuda->side, cuda->side_fork, 0));
    *side = cuda->side;
    return SL_OK;
}

sl_status sl_cuda_join(sl_cuda *cuda, cudaStream_t stream)
{
    SL_CUDA(cudaEventRecord(cuda->side_join, cuda->side));
    SL_CUDA(cudaStreamWaitEvent(stream, cuda->side_join, 0));
    return SL_OK;
}

sl_cuda_cached *sl_cuda_cache_find(sl_cuda *cuda, sl_op_id op, const void *key, size_t bytes)
{
    for (sl_cuda_cached *c = cuda->cache; c; c = c->next)
        if (c->op == op && memcmp(c->key, key, bytes) == 0)
            return c;
    return NULL;
}

void sl_cuda_cache_add(sl_cuda *cuda, sl_op_id op, const void *key, size_t bytes, sl_cuda_cached *entry)
{
    entry->op = op;
    memcpy(entry->key, key, bytes);
    entry->next = cuda->cache;
    cuda->cache = entry;
}

/* ---- opening and closing ---- */

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
    sl_status status = sl_cuda_host->pages_map(bytes, &cuda->arena[SL_TIER_HOST]);
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
    if (cuda->info.capability < 80)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "%s has compute capability %d.%d; 8.0 or newer is needed", p.name,
                            p.major, p.minor);
    snprintf(cuda->name, sizeof cuda->name, "%s", p.name);
    snprintf(cuda->numerics, sizeof cuda->numerics, "cuda %s sm_%d, cuBLASLt %zu, cuDNN %zu%s", p.name,
             cuda->info.capability, cublasLtGetVersion(), cudnnGetVersion(), cuda->info.tf32 ? ", TF32" : "");
    return SL_OK;
}

static void cuda_close(sl_device *device)
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

extern const sl_device_class sl_cuda_class;

static sl_status cuda_open(const sl_device_config *config, sl_device **device)
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
        cuda_close(&cuda->base);
        return status;
    }
    *device = &cuda->base;
    return SL_OK;
}

/* ---- steps ---- */

static void *cuda_arena(sl_device *device, sl_tier tier)
{
    return ((sl_cuda *) device)->arena[tier];
}

static size_t cuda_workspace(sl_device *device, const sl_launch *launch, sl_stream stream)
{
    sl_cuda *cuda = (sl_cuda *) device;
    if (stream == SL_STREAM_HOST)
        return sl_cuda_host->host_workspace(cuda->host, launch);
    const sl_cuda_kernel *kernel = sl_cuda_kernel_find(launch->op);
    return kernel && kernel->workspace ? kernel->workspace(cuda, launch) : 0;
}

static sl_status cuda_supports(sl_device *device, const sl_launch *launch)
{
    const sl_cuda_kernel *kernel = sl_cuda_kernel_find(launch->op);
    if (!kernel)
        return sl_cuda_fail(SL_E_UNSUPPORTED, "the CUDA device has no kernel for %s",
                            sl_cuda_host->op(launch->op)->name);
    return kernel->supports ? kernel->supports((sl_cuda *) device, launch) : SL_OK;
}

static sl_status cuda_replay(sl_device *device, uint64_t list, bool *started)
{
    sl_cuda *cuda = (sl_cuda *) device;
    *started = false;
    cuda->current = NULL;
    if (cuda->sync) /* a captured step has no commands to wait for one by one */
        return SL_OK;
    for (int i = 0; i < SL_CUDA_LISTS && !cuda->current; i++)
        if (cuda->lists[i].list == list || cuda->lists[i].list == 0)
            cuda->current = &cuda->lists[i];
    if (!cuda->current)
        return SL_OK;
    cuda->current->list = list;
    if (!cuda->current->graph)
        return SL_OK;
    SL_CUDA(cudaGraphLaunch(cuda->current->graph, cuda->stream[SL_STREAM_COMPUTE]));
    cuda->replaying = *started = true;
    return SL_OK;
}

static sl_status cuda_step_begin(sl_device *device)
{
    sl_cuda *cuda = (sl_cuda *) device;
    cuda->n_host_tasks = cuda->n_timings = 0;
    cuda->replaying = cuda->spoilt = false;
    cuda->capturing = cuda->current && cuda->current->launch_bound && !cuda->current->graph;
    if (cuda->current)
        cuda->current->steps++;
    cuda->began_s = sl_cuda_host->clock_s();
    cudaStream_t compute = cuda->stream[SL_STREAM_COMPUTE];
    if (cuda->capturing)
        SL_CUDA(cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal));
    else
        SL_CUDA(cudaEventRecord(cuda->began, compute));
    SL_CUDA(cudaEventRecord(cuda->fork, compute));
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        if (s != SL_STREAM_COMPUTE)
            SL_CUDA(cudaStreamWaitEvent(cuda->stream[s], cuda->fork, 0));
    return SL_OK;
}

static void run_host_task(void *context)
{
    host_task *task = context;
    sl_cuda_host->host_run(task->cuda->host, task->launch);
}

/* The timing of a command about to be issued, its start recorded; NULL in a captured step or when nobody asks. */
static sl_status begin_timing(sl_cuda *cuda, cudaStream_t stream, sl_span *span, timing **out)
{
    *out = NULL;
    bool settled = cuda->current && cuda->current->steps > TIMED_STEPS; /* spans keep what they were */
    if (cuda->capturing || settled || !span || cuda->n_timings >= cuda->max_timings)
        return SL_OK;
    timing *t = &cuda->timings[cuda->n_timings++];
    if (!t->start) {
        SL_CUDA(cudaEventCreate(&t->start));
        SL_CUDA(cudaEventCreate(&t->end));
    }
    t->span = span;
    SL_CUDA(cudaEventRecord(t->start, stream));
    *out = t;
    return SL_OK;
}

static sl_status end_timing(cudaStream_t stream, timing *t)
{
    if (t)
        SL_CUDA(cudaEventRecord(t->end, stream));
    return SL_OK;
}

static sl_status read_timings(sl_cuda *cuda)
{
    for (int64_t i = 0; i < cuda->n_timings; i++) {
        float start, end;
        SL_CUDA(cudaEventElapsedTime(&start, cuda->began, cuda->timings[i].start));
        SL_CUDA(cudaEventElapsedTime(&end, cuda->began, cuda->timings[i].end));
        *cuda->timings[i].span = (sl_span){start * 1e-3, end * 1e-3};
    }
    return SL_OK;
}

static sl_status issue_launch(sl_cuda *cuda, sl_stream stream, const sl_launch *launch)
{
    if (stream == SL_STREAM_HOST) {
        if (cuda->n_host_tasks >= cuda->max_host_tasks)
            return sl_cuda_fail(SL_E_INTERNAL, "more than %lld host launches in a step",
                                (long long) cuda->max_host_tasks);
        host_task *task = &cuda->host_tasks[cuda->n_host_tasks++];
        *task = (host_task){cuda, launch};
        SL_CUDA(cudaLaunchHostFunc(cuda->stream[stream], run_host_task, task));
        return SL_OK;
    }
    const sl_cuda_kernel *kernel = sl_cuda_kernel_find(launch->op);
    if (!kernel)
        return cuda_supports(&cuda->base, launch);
    return kernel->run(cuda, launch, cuda->stream[stream]);
}

static sl_status timed_launch(sl_cuda *cuda, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    timing *t;
    SL_TRY(begin_timing(cuda, cuda->stream[stream], span, &t));
    SL_TRY(issue_launch(cuda, stream, launch));
    SL_TRY(end_timing(cuda->stream[stream], t));
    if (cuda->sync)
        SL_CUDA(cudaStreamSynchronize(cuda->stream[stream]));
    return SL_OK;
}

static sl_status timed_copy(sl_cuda *cuda, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    timing *t;
    SL_TRY(begin_timing(cuda, cuda->stream[stream], span, &t));
    SL_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->stream[stream]));
    SL_TRY(end_timing(cuda->stream[stream], t));
    if (cuda->sync)
        SL_CUDA(cudaStreamSynchronize(cuda->stream[stream]));
    return SL_OK;
}

/* A call failed while `what` was issued. If the context still answers, the call itself is to blame; if not, a command that ran
 * meanwhile is, and it need not be this one. */
static sl_status issue_failed(sl_cuda *cuda, sl_status status, const char *what)
{
    cudaGetLastError(); /* forgets a call's own error; a dead context keeps its */
    cuda->spoilt = true;
    cudaError_t state = cuda->capturing ? cudaSuccess : cudaStreamQuery(cuda->stream[SL_STREAM_COMPUTE]);
    if (cuda->sync || state == cudaSuccess || state == cudaErrorNotReady)
        return sl_cuda_host->fail_at(status, "%s", what);
    return sl_cuda_host->fail_at(status,
                                 "%s was issued when this or an earlier command of the step had failed, "
                                 "SLUICE_CUDA_SYNC=1 tells which",
                                 what);
}

static sl_status cuda_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    sl_cuda *cuda = (sl_cuda *) device;
    char what[320];
    sl_status status = timed_launch(cuda, stream, launch, span);
    return status == SL_OK ? SL_OK : issue_failed(cuda, status, sl_cuda_host->launch_describe(launch, what));
}

static sl_status cuda_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    sl_cuda *cuda = (sl_cuda *) device;
    char what[96];
    sl_status status = timed_copy(cuda, stream, to, from, bytes, span);
    if (status == SL_OK)
        return SL_OK;
    snprintf(what, sizeof what, "a copy of %zu bytes from %p to %p", bytes, from, to);
    return issue_failed(cuda, status, what);
}

static sl_status cuda_record(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cuda *cuda = (sl_cuda *) device;
    SL_CUDA(cudaEventRecord(cuda->events[event], cuda->stream[stream]));
    return SL_OK;
}

static sl_status cuda_wait(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cuda *cuda = (sl_cuda *) device;
    SL_CUDA(cudaStreamWaitEvent(cuda->stream[stream], cuda->events[event], 0));
    return SL_OK;
}

static sl_status join_streams(sl_cuda *cuda)
{
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        if (s != SL_STREAM_COMPUTE) {
            SL_CUDA(cudaEventRecord(cuda->join[s], cuda->stream[s]));
            SL_CUDA(cudaStreamWaitEvent(cuda->stream[SL_STREAM_COMPUTE], cuda->join[s], 0));
        }
    return SL_OK;
}

/* Turns what was captured into a graph and launches it, unless a command is missing in it. */
static sl_status launch_captured(sl_cuda *cuda)
{
    cudaStream_t compute = cuda->stream[SL_STREAM_COMPUTE];
    cudaGraph_t graph = NULL;
    sl_status joined = join_streams(cuda);
    cudaError_t error = cudaStreamEndCapture(compute, &graph);
    cuda->capturing = false;
    if (joined == SL_OK && error == cudaSuccess && !cuda->spoilt)
        error = cudaGraphInstantiate(&cuda->current->graph, graph, 0);
    if (graph)
        cudaGraphDestroy(graph);
    if (joined != SL_OK || error != cudaSuccess || cuda->spoilt) {
        cudaGetLastError();
        cuda->current->launch_bound = false; /* plain steps work */
        if (cuda->spoilt)
            return SL_OK; /* the launch has said why */
        return joined != SL_OK
                   ? joined
                   : sl_cuda_fail(SL_E_DEVICE, "capturing a step as a CUDA graph: %s", cudaGetErrorString(error));
    }
    SL_CUDA(cudaGraphLaunch(cuda->current->graph, compute));
    return SL_OK;
}

static sl_status finish_step(sl_cuda *cuda)
{
    cudaStream_t compute = cuda->stream[SL_STREAM_COMPUTE];
    if (cuda->capturing)
        SL_TRY(launch_captured(cuda));
    else if (!cuda->replaying)
        SL_TRY(join_streams(cuda));
    double issued_s = sl_cuda_host->clock_s();
    cudaError_t error = cudaStreamSynchronize(compute);
    if (error != cudaSuccess)
        return sl_cuda_fail(SL_E_DEVICE,
                            "a command failed on the GPU: %s; the same command line with SLUICE_CUDA_SYNC=1 in "
                            "front names its task",
                            cudaGetErrorString(error));
    if (cuda->current && cuda->current->steps == TIMED_STEPS)
        cuda->current->launch_bound =
            issued_s - cuda->began_s > LAUNCH_BOUND * (sl_cuda_host->clock_s() - cuda->began_s);
    return cuda->replaying ? SL_OK : read_timings(cuda);
}

static sl_status cuda_step_end(sl_device *device)
{
    sl_cuda *cuda = (sl_cuda *) device;
    sl_status status = finish_step(cuda);
    cuda->current = NULL; /* a step that replay() was not asked for belongs to no list */
    return status;
}

static sl_status cuda_transfer(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    sl_cuda *cuda = (sl_cuda *) device;
    if (tier == SL_TIER_HOST) {
        memcpy(to, from, bytes);
        return SL_OK;
    }
    SL_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, cuda->stream[SL_STREAM_COMPUTE]));
    SL_CUDA(cudaStreamSynchronize(cuda->stream[SL_STREAM_COMPUTE]));
    return SL_OK;
}

static sl_status cuda_write(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes)
{
    sl_cuda *cuda = (sl_cuda *) device;
    if (from)
        return cuda_transfer(device, tier, to, from, bytes);
    if (tier == SL_TIER_HOST) {
        pages p = {to, bytes, 1};
        sl_cuda_host->host_parallel(cuda->host, zero_pages, &p, pages_tiles(&p));
        return SL_OK;
    }
    SL_CUDA(cudaMemsetAsync(to, 0, bytes, cuda->stream[SL_STREAM_COMPUTE]));
    SL_CUDA(cudaStreamSynchronize(cuda->stream[SL_STREAM_COMPUTE]));
    return SL_OK;
}

/* A built-in profile of the same chip where there is one; else what clock and multiprocessors promise, with the shares that
 * Ada and Ampere cards usually reach. */
static void cuda_hardware(sl_device *device, sl_hardware *hardware)
{
    static const struct {
        const char *name, *profile;
    } known[] = {
        {"H200", "h200"}, {"H100", "h100"}, {"A100", "a100"}, {"RTX 5090", "rtx5090"}, {"RTX 3090", "rtx3090"}};
    sl_cuda *cuda = (sl_cuda *) device;
    const sl_cuda_info *info = &cuda->info;
    double clocks = (double) info->multiprocessors * info->clock_hz;
    *hardware = (sl_hardware){
        .peak_flops = {[SL_F32] = clocks * (info->capability == 80 ? 128 : 256),
                       [SL_BF16] = clocks * (info->capability == 80        ? 2048
                                             : info->capability == 90      ? 4096
                                             : info->capability / 10 == 10 ? 8192
                                                                           : 512)},
        .matmul_efficiency = 0.75,
        .attention_efficiency = {0.6, 0.5},
        .memory_bandwidth = {info->memory_bytes_per_s * 0.9, 60e9},
        .link_bandwidth = {24e9, 24e9},
        .link_bandwidth_both = 21e9,
        .link_latency_s = 10e-6,
        .launch_latency_s = 4e-6,
        .host_optimizer_bandwidth = 50e9,
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strstr(cuda->name, known[i].name))
            sl_cuda_host->hardware_find(known[i].profile, hardware);
    snprintf(hardware->name, sizeof hardware->name, "%.63s", cuda->name);
    hardware->memory_bytes[SL_TIER_DEVICE] = cuda->total;
    hardware->memory_bytes[SL_TIER_HOST] = (size_t) sysconf(_SC_PHYS_PAGES) * (size_t) sysconf(_SC_PAGESIZE);
}

/* All that is taken and not the arena; other processes' memory counts too, where there are any. */
static size_t cuda_overhead(sl_device *device)
{
    sl_cuda *cuda = (sl_cuda *) device;
    size_t available = 0, total = 0;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess || total - available < cuda->arena_bytes[SL_TIER_DEVICE])
        return 0;
    return total - available - cuda->arena_bytes[SL_TIER_DEVICE];
}

static const char *cuda_numerics(sl_device *device)
{
    return ((sl_cuda *) device)->numerics;
}

const sl_device_class sl_cuda_class = {
    .name = "cuda",
    .describe = "NVIDIA GPU (cuBLASLt, cuDNN, own kernels)",
    .open = cuda_open,
    .close = cuda_close,
    .arena = cuda_arena,
    .workspace = cuda_workspace,
    .supports = cuda_supports,
    .replay = cuda_replay,
    .step_begin = cuda_step_begin,
    .launch = cuda_launch,
    .copy = cuda_copy,
    .record = cuda_record,
    .wait = cuda_wait,
    .step_end = cuda_step_end,
    .scope = sl_cuda_scope,
    .write = cuda_write,
    .read = cuda_transfer,
    .hardware = cuda_hardware,
    .overhead = cuda_overhead,
    .remember = sl_cuda_choices_files,
    .numerics = cuda_numerics,
};

/* Is there a GPU, and a driver and libraries that this was built for? (A cuBLASLt or cuDNN of another major version has another
 * file name: then the plugin does not load at all, which the loader says.) */
static sl_status find_gpu(void)
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
    return SL_OK;
}

__attribute__((visibility("default"))) sl_status sluice_plugin(const sl_plugin_host *host,
                                                               const sl_device_class **class);
sl_status sluice_plugin(const sl_plugin_host *host, const sl_device_class **class)
{
    if (host->abi != SL_PLUGIN_ABI)
        return host->fail(SL_E_DEVICE,
                          "libsluice_cuda.so is for another version (interface %d, this program has %d); rebuild it",
                          SL_PLUGIN_ABI, host->abi);
    sl_cuda_host = host;
    sl_cuda_fail = host->fail;
    SL_TRY(find_gpu());
    *class = &sl_cuda_class;
    return SL_OK;
}
