/*
 * A GPU without one: stands in for the CUDA runtime, cuBLASLt, cuDNN and all kernels, so that the CUDA device's own logic (recording
 * steps, replaying them, errors that come late, errors of calls) runs in any test. test_cuda_steps.sh links it to the real
 * src/device/cuda/runtime/device.c and open.c. Kernels are the CPU's; memory is the host's, and begins as NaNs.
 *
 * STAND_IN=late: commands run when somebody waits, and one that kills shows a while after its launch, as on a GPU; otherwise
 *          they run as they are issued, which makes every step launch-bound, and the third one is captured.
 * STAND_IN=full: as late, but only so many commands wait; whoever issues one more waits for the oldest.
 * STAND_IN_FAIL=OP:N: the N-th launch of that op is refused by its library.
 * A kernel that writes to UNMAPPED kills the context: from then on every call fails.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/runtime/state.h"

enum {
    NOTICED = 40, /* commands behind the one that killed */
    FULL = 300,   /* commands that wait at most */
};
#define UNMAPPED ((void *) (uintptr_t) 0x100000)

typedef struct command {
    enum { LAUNCH, COPY, ZERO, HOST } kind;
    const sl_launch *launch;
    sl_cuda *cuda;
    void *to;
    const void *from;
    size_t bytes;
    cudaHostFn_t fn;
} command;

typedef struct queue {
    command *commands;
    int64_t count, capacity;
} queue;

/* Weights are written by several threads at a time. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static queue waiting, *captured; /* captured: not NULL while a capture is on */
static cudaError_t dead;         /* what killed the context */
static int64_t refusals;         /* launches of the op that STAND_IN_FAIL names */
static int64_t executed;         /* commands: the clock's microseconds, so that nobody else makes a step launch-bound */

static void push(queue *q, const command *c)
{
    if (q->count == q->capacity) {
        q->capacity = q->capacity ? 2 * q->capacity : 64;
        q->commands = realloc(q->commands, (size_t) q->capacity * sizeof *q->commands);
    }
    q->commands[q->count++] = *c;
}

static bool kills(const command *c)
{
    for (int k = 0; c->kind == LAUNCH && k < SL_MAX_OUT; k++)
        if (c->launch->out[k].data == UNMAPPED)
            return true;
    return false;
}

static double clock_s(void)
{
    return 1e-6 * (double) executed;
}

static void execute(const command *c)
{
    executed++;
    if (kills(c)) {
        dead = cudaErrorIllegalAddress;
        return;
    }
    switch (c->kind) {
    case LAUNCH:
        sl_cuda_host->host_run(c->cuda->host, c->launch);
        break;
    case COPY:
        memmove(c->to, c->from, c->bytes);
        break;
    case ZERO:
        memset(c->to, 0, c->bytes);
        break;
    case HOST:
        c->fn(c->to);
        break;
    }
}

static void drain(void)
{
    pthread_mutex_lock(&lock);
    for (int64_t i = 0; i < waiting.count && !dead; i++)
        execute(&waiting.commands[i]);
    waiting.count = 0;
    pthread_mutex_unlock(&lock);
}

static void run_oldest(void)
{
    execute(&waiting.commands[0]);
    memmove(waiting.commands, waiting.commands + 1, (size_t) --waiting.count * sizeof *waiting.commands);
}

static cudaError_t issue(command c)
{
    const char *mode = getenv("STAND_IN");
    bool full = mode && strcmp(mode, "full") == 0;
    pthread_mutex_lock(&lock);
    if (captured)
        push(captured, &c);
    else if (full || (mode && strcmp(mode, "late") == 0))
        push(&waiting, &c);
    else
        execute(&c);
    while (full && waiting.count > FULL)
        run_oldest();
    if (waiting.count >= NOTICED && kills(&waiting.commands[waiting.count - NOTICED]))
        drain();
    pthread_mutex_unlock(&lock);
    return cudaSuccess; /* what ran may have died; the next call says so */
}

/* A call that may not stand in a capture. */
static cudaError_t outside_capture(const char *call)
{
    if (captured) {
        fprintf(stderr, "stand-in: %s in a capture\n", call);
        abort();
    }
    return dead;
}

/* ---- kernels ---- */

static bool refused(const sl_launch *launch)
{
    const char *asked = getenv("STAND_IN_FAIL"), *name = sl_cuda_host->op(launch->op)->name;
    size_t length = strlen(name);
    return asked && strncmp(asked, name, length) == 0 && asked[length] == ':' &&
           ++refusals == atoll(asked + length + 1);
}

static cublasStatus_t cublasLtStandIn(const sl_launch *launch)
{
    return refused(launch) ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

static sl_status run(sl_cuda *cuda, const sl_launch *launch, cudaStream_t stream)
{
    (void) stream;
    SL_CUBLAS(cublasLtStandIn(launch));
    SL_CUDA(cudaGetLastError());
    SL_CUDA(issue((command){.kind = LAUNCH, .launch = launch, .cuda = cuda}));
    return SL_OK;
}

static size_t workspace(sl_cuda *cuda, const sl_launch *launch)
{
    return SL_ROUND_UP(sl_cuda_host->host_workspace(cuda->host, launch), (size_t) SL_ALIGN);
}

#define SL_CUDA_KERNEL(ID, name)                \
    extern const sl_cuda_kernel sl_cuda_##name; \
    const sl_cuda_kernel sl_cuda_##name = {SL_OP_##ID, NULL, workspace, run};
#include "device/cuda/kernels/kernels.def"
#undef SL_CUDA_KERNEL

/* ---- the runtime: what the device's files call, each as its manual says as far as they depend on it ---- */

/* The first call of all. */
cudaError_t cudaGetDeviceCount(int *count)
{
    static sl_plugin_host host;
    host = *sl_cuda_host;
    host.clock_s = clock_s;
    sl_cuda_host = &host;
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    (void) device;
    return dead;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    (void) device;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "stand-in");
    p->major = 9, p->multiProcessorCount = 4, p->memoryBusWidth = 128;
    return dead;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void) attribute, (void) device;
    *value = 1000000; /* kHz */
    return dead;
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *total)
{
    *available = (size_t) 1 << 30;
    *total = (size_t) 2 << 30;
    return outside_capture("cudaMemGetInfo");
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = aligned_alloc(SL_ALIGN, SL_ROUND_UP(bytes, (size_t) SL_ALIGN));
    memset(*memory, 0xff, bytes);
    return outside_capture("cudaMalloc");
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return outside_capture("cudaFree");
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    (void) memory, (void) bytes, (void) flags;
    return dead;
}

cudaError_t cudaHostUnregister(void *memory)
{
    (void) memory;
    return dead;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    (void) flags;
    *stream = malloc(1);
    return dead;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return dead;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = malloc(1);
    return dead;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void) flags;
    return cudaEventCreate(event);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return dead;
}

/* Commands run in the order of issue, which every order of streams and events allows. */
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    (void) event, (void) stream;
    return dead;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void) stream, (void) event, (void) flags;
    return dead;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    (void) start, (void) end;
    *ms = 1;
    return dead;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    (void) stream;
    drain();
    return outside_capture("cudaStreamSynchronize");
}

cudaError_t cudaDeviceSynchronize(void)
{
    drain();
    return dead;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    (void) stream;
    cudaError_t state = outside_capture("cudaStreamQuery");
    return state ? state : cudaErrorNotReady;
}

cudaError_t cudaGetLastError(void)
{
    return dead;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void) kind, (void) stream;
    return dead ? dead : issue((command){.kind = COPY, .to = to, .from = from, .bytes = bytes});
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    (void) value, (void) stream;
    return dead ? dead : issue((command){.kind = ZERO, .to = to, .bytes = bytes});
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *context)
{
    (void) stream;
    return dead ? dead : issue((command){.kind = HOST, .to = context, .fn = fn});
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void) stream, (void) mode;
    captured = calloc(1, sizeof *captured);
    fprintf(stderr, "stand-in: a capture\n");
    return dead;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    (void) stream;
    *graph = (cudaGraph_t) (void *) captured;
    captured = NULL;
    return dead;
}

static void free_queue(void *queue_)
{
    queue *q = queue_;
    free(q->commands);
    free(q);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void) flags;
    const queue *from = (const queue *) (void *) graph;
    queue *q = calloc(1, sizeof *q);
    for (int64_t i = 0; i < from->count; i++)
        push(q, &from->commands[i]);
    *out = (cudaGraphExec_t) (void *) q;
    return dead;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free_queue(graph);
    return dead;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    free_queue(graph);
    return dead;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    (void) stream;
    const queue *q = (const queue *) (void *) graph;
    fprintf(stderr, "stand-in: a replay\n");
    for (int64_t i = 0; i < q->count && !dead; i++)
        execute(&q->commands[i]);
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "no error";
}

/* ---- the libraries ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    *handle = malloc(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS ? "CUBLAS_STATUS_SUCCESS" : "CUBLAS_STATUS_NOT_SUPPORTED";
}

size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = NULL;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    (void) handle;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    (void) handle, (void) stream;
    return CUDNN_STATUS_SUCCESS;
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
    (void) status;
    return "no error";
}
