/* What the files of the CPU device share: its streams and its copy. */
#ifndef SL_DEVICE_CPU_CPU_H
#define SL_DEVICE_CPU_CPU_H

#include "device/cpu/kernels/kernel.h"
#include "device/cpu/runtime/throughput.h"
#include "device/queued.h"

typedef struct sl_cpu_streams sl_cpu_streams;

/* One thread per stream. Pools by stream, not owned; NULL: kernels of that stream run in its own thread. */
sl_status sl_cpu_streams_create(int64_t max_commands, int64_t max_events, sl_pool *const pools[SL_STREAM_COUNT],
                                sl_cpu_streams **streams);
void sl_cpu_streams_destroy(sl_cpu_streams *streams);

/* All from one thread, the host's. push only appends; finish returns when every queue is empty. */
void sl_cpu_streams_begin(sl_cpu_streams *streams);
sl_status sl_cpu_streams_push(sl_cpu_streams *streams, sl_stream stream, const sl_command *command);
void sl_cpu_streams_finish(sl_cpu_streams *streams);
/* How often the host's thread slept so far, for tests: never inside a step. */
uint64_t sl_cpu_streams_host_waits(const sl_cpu_streams *streams);

/* memcpy for blocks larger than the caches. */
void sl_cpu_copy(void *to, const void *from, size_t bytes);

/* Rough figures of this machine for the CPU device, by instruction set, cores, frequency and what a core does per cycle. */
void sl_cpu_profile(sl_isa isa, int threads, const sl_cpu_throughput *per_cycle, sl_hardware *hardware);

extern const sl_device_class sl_device_cpu;
/* The same counter through the device. */
uint64_t sl_cpu_device_host_waits(const sl_device *device);

#endif
