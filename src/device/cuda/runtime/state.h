/* What a CUDA device consists of, for the files that open it (open.c) and run steps on it (device.c). */
#ifndef SL_DEVICE_CUDA_STATE_H
#define SL_DEVICE_CUDA_STATE_H

#include "device/cuda/runtime/cuda.h"
#include "device/plugin.h"

extern const sl_plugin_host *sl_cuda_host; /* set once by sluice_plugin() */
extern const sl_device_class sl_cuda_class;

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

/* When a command ran: events around it, read at the step's end. Behind a list's second step spans stay as they are, replayed or not. */
typedef struct timing {
    cudaEvent_t start, end;
    sl_span *span;
} timing;

struct sl_cuda {
    sl_device base;
    sl_cuda_info info;
    char name[64], numerics[128];
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
    bool spoilt;              /* a command of this step could not be issued */
    bool sync;                /* SLUICE_CUDA_SYNC=1: wait after each command, so that what fails is what is reported */
    double began_s, queued_s; /* host clock at step_begin, and when the first few hundred commands had been issued */
    int64_t n_issued;
    size_t free_before, total;
};

/* The first call of all: is there a GPU, and a driver that this was built for? */
sl_status sl_cuda_find_gpu(void);
sl_status sl_cuda_open(const sl_device_config *config, sl_device **device);
void sl_cuda_close(sl_device *device);
void sl_cuda_hardware(sl_device *device, sl_hardware *hardware);
size_t sl_cuda_overhead(sl_device *device);
void sl_cuda_zero_host(sl_cuda *cuda, void *memory, size_t bytes); /* on all cores */

#endif
