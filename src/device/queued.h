/* What devices share whose memory the host addresses and whose commands wait in queues of the program: arenas in ordinary memory, the
 * checks of the contract, and the step's first error. Such a device begins with an sl_queued, brings the queues, and takes the
 * functions below into its class. */
#ifndef SL_DEVICE_QUEUED_H
#define SL_DEVICE_QUEUED_H

#include "device/device.h"

typedef enum sl_command_kind { SL_COMMAND_RUN, SL_COMMAND_COPY, SL_COMMAND_RECORD, SL_COMMAND_WAIT } sl_command_kind;
/* One entry of a stream's queue. */
typedef struct sl_command {
    sl_command_kind kind;
    const sl_launch *launch; /* RUN */
    const void *kernel;      /* RUN: the device's own */
    unsigned char *to;       /* COPY */
    const unsigned char *from;
    size_t bytes;
    int64_t event; /* RECORD, WAIT */
    sl_span *span; /* RUN, COPY; NULL: not wanted */
} sl_command;

typedef struct sl_queued sl_queued;
struct sl_queued {
    sl_device base;
    sl_device_config config;
    unsigned char *arena[SL_TIER_COUNT];
    sl_status (*push)(sl_queued *device, sl_stream stream, const sl_command *command);
    bool in_step;
    sl_status error; /* the step's first, with its message */
    char message[512];
};

sl_status sl_queued_open(sl_queued *device, const sl_device_class *class, const sl_device_config *config);
void sl_queued_close(sl_queued *device); /* unmaps the arenas */
/* The step's first error is kept for sl_queued_end(). */
sl_status sl_queued_begin(sl_queued *device);
sl_status sl_queued_end(sl_queued *device);
/* Pushes the launch if the checks so far gave `status` SL_OK and its operands lie in the arenas. */
sl_status sl_queued_launch(sl_queued *device, sl_status status, sl_stream stream, const sl_launch *launch,
                           const void *kernel, sl_span *span);

/* ---- of sl_device_class ---- */
#define SL_QUEUED_FUNCTIONS                                                                               \
    .arena = sl_queued_arena, .copy = sl_queued_copy, .record = sl_queued_record, .wait = sl_queued_wait, \
    .write = sl_queued_write, .read = sl_queued_read
void *sl_queued_arena(sl_device *device, sl_tier tier);
sl_status sl_queued_copy(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span);
sl_status sl_queued_record(sl_device *device, sl_stream stream, int64_t event);
sl_status sl_queued_wait(sl_device *device, sl_stream stream, int64_t event);
sl_status sl_queued_write(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes);
sl_status sl_queued_read(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes);

/* For `push`: is a record of an event or a wait for it within the contract? `issued`: by event, the last step that recorded it. */
sl_status sl_event_issue(uint64_t *issued, int64_t count, uint64_t step, sl_stream stream, const sl_command *command);

#endif
