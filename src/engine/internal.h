/* What the engine's files share. */
#ifndef SL_ENGINE_INTERNAL_H
#define SL_ENGINE_INTERNAL_H

#include <stdatomic.h>

#include "engine/engine.h"

/* An action, resolved: everything the issue loop needs and nothing else. */
typedef struct sl_engine_item {
    const sl_launch *launch; /* TASK; NULL: COPY */
    void *to;
    const void *from;
    size_t bytes;
    sl_stream stream;
    int32_t first_wait, n_waits; /* engine->waits: events */
    int32_t event;               /* recorded behind it; -1: nothing waits for it */
    size_t top[SL_TIER_COUNT];   /* end of the highest byte it touches */
} sl_engine_item;

struct sl_engine {
    uint64_t id; /* of its command list, for devices that replay lists */
    sl_device *device;
    const sl_program *program;
    const sl_plan *plan;
    unsigned char *base[SL_TIER_COUNT];
    sl_launch *launches;
    sl_engine_item *items; /* by action */
    int32_t *waits;
    sl_span *spans;                          /* by action */
    atomic_size_t peak_bytes[SL_TIER_COUNT]; /* state is read and written by several threads between steps */
    double peak_flops;
    int64_t steps; /* begun so far */
};

/* The scopes of the step that is being issued (names.c). */
typedef struct sl_engine_scopes {
    bool on;
    int32_t open[SL_SCOPE_OP]; /* which round, layer and chunk; -1: none */
} sl_engine_scopes;
void sl_engine_scopes_begin(sl_engine *engine, sl_engine_scopes *scopes);
void sl_engine_scopes_enter(const sl_engine *engine, sl_engine_scopes *scopes, int32_t action);
void sl_engine_scopes_leave(const sl_engine *engine, const sl_engine_scopes *scopes);
void sl_engine_scopes_end(const sl_engine *engine, sl_engine_scopes *scopes);
/* Puts the action's task and tensors in front of the message of a command that failed; returns `status`. */
sl_status sl_engine_name_failure(const sl_engine *engine, int32_t action, sl_status status);

/* Issues one action's command, without its waits and its event. */
sl_status sl_engine_issue(sl_engine *engine, int32_t action);

#endif
