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
 */
#include <stdio.h>
#include <string.h>

#include "device/cuda/gemm/choices.h"
#include "device/cuda/runtime/nvtx.h"
#include "device/cuda/runtime/state.h"

const sl_plugin_host *sl_cuda_host;
sl_status (*sl_cuda_fail)(sl_status status, const char *format, ...);

#define LAUNCH_BOUND 0.2 /* of a step's time spent issuing it */
enum {
    TIMED_STEPS = 2,
    QUEUED = 256, /* commands that streams surely take without waiting for the GPU */
};

#define SL_CUDA_KERNEL(ID, name) extern const sl_cuda_kernel sl_cuda_##name;
#include "device/cuda/kernels/kernels.def"
#undef SL_CUDA_KERNEL

const sl_cuda_kernel *sl_cuda_kernel_find(sl_op_id op)
{
    switch (op) {
#define SL_CUDA_KERNEL(ID, name) \
    case SL_OP_##ID:             \
        return &sl_cuda_##name;
#include "device/cuda/kernels/kernels.def"
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
    cuda->n_host_tasks = cuda->n_timings = cuda->n_issued = 0;
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

/* The timing of a command about to be issued, its start recorded; NULL in a captured step or without a span. */
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

/* A call failed while `what` was issued. If the context still answers, the call itself failed; if not, a command that ran
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

static void count_issued(sl_cuda *cuda)
{
    if (++cuda->n_issued == QUEUED)
        cuda->queued_s = sl_cuda_host->clock_s();
}

/* Seconds that issuing a step takes if the GPU is never waited for. Streams take about a thousand commands; behind those the
 * issuing is as slow as the GPU, which would make every long step look bound by it. */
static double issue_seconds(const sl_cuda *cuda, double issued_s)
{
    if (cuda->n_issued <= QUEUED)
        return issued_s - cuda->began_s;
    return (cuda->queued_s - cuda->began_s) * (double) cuda->n_issued / QUEUED;
}

static sl_status cuda_launch(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span)
{
    sl_cuda *cuda = (sl_cuda *) device;
    char what[320];
    count_issued(cuda);
    sl_status status = timed_launch(cuda, stream, launch, span);
    return status == SL_OK ? SL_OK : issue_failed(cuda, status, sl_cuda_host->launch_describe(launch, what));
}

static sl_status cuda_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span)
{
    sl_cuda *cuda = (sl_cuda *) device;
    char what[96];
    count_issued(cuda);
    sl_status status = timed_copy(cuda, stream, to, from, bytes, span);
    if (status == SL_OK)
        return SL_OK;
    snprintf(what, sizeof what, "a copy of %zu bytes from %p to %p", bytes, from, to);
    return issue_failed(cuda, status, what);
}

static sl_status record_event(sl_cuda *cuda, sl_stream stream, int64_t event)
{
    SL_CUDA(cudaEventRecord(cuda->events[event], cuda->stream[stream]));
    return SL_OK;
}

static sl_status wait_for_event(sl_cuda *cuda, sl_stream stream, int64_t event)
{
    SL_CUDA(cudaStreamWaitEvent(cuda->stream[stream], cuda->events[event], 0));
    return SL_OK;
}

static sl_status cuda_record(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cuda *cuda = (sl_cuda *) device;
    sl_status status = record_event(cuda, stream, event);
    return status == SL_OK ? SL_OK : issue_failed(cuda, status, "recording an event");
}

static sl_status cuda_wait(sl_device *device, sl_stream stream, int64_t event)
{
    sl_cuda *cuda = (sl_cuda *) device;
    sl_status status = wait_for_event(cuda, stream, event);
    return status == SL_OK ? SL_OK : issue_failed(cuda, status, "waiting for an event");
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
        if (cuda->spoilt)
            return SL_OK; /* the launch has said why */
        return joined != SL_OK
                   ? joined
                   : sl_cuda_fail(SL_E_DEVICE,
                                  "capturing a step as a CUDA graph: %s; SLUICE_CUDA_SYNC=1 issues every step plainly",
                                  cudaGetErrorString(error));
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
            issue_seconds(cuda, issued_s) > LAUNCH_BOUND * (sl_cuda_host->clock_s() - cuda->began_s);
    /* Of a command that failed there is no end to read; its own message is the one that counts. */
    return cuda->replaying || cuda->spoilt ? SL_OK : read_timings(cuda);
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
        sl_cuda_zero_host(cuda, to, bytes);
        return SL_OK;
    }
    SL_CUDA(cudaMemsetAsync(to, 0, bytes, cuda->stream[SL_STREAM_COMPUTE]));
    SL_CUDA(cudaStreamSynchronize(cuda->stream[SL_STREAM_COMPUTE]));
    return SL_OK;
}

static const char *cuda_numerics(sl_device *device)
{
    return ((sl_cuda *) device)->numerics;
}

const sl_device_class sl_cuda_class = {
    .name = "cuda",
    .describe = "NVIDIA GPU (cuBLASLt, cuDNN, own kernels)",
    .pins_host = true,
    .open = sl_cuda_open,
    .close = sl_cuda_close,
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
    .hardware = sl_cuda_hardware,
    .overhead = sl_cuda_overhead,
    .remember = sl_cuda_choices_files,
    .numerics = cuda_numerics,
};

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
    SL_TRY(sl_cuda_find_gpu());
    *class = &sl_cuda_class;
    return SL_OK;
}
