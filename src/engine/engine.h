/*
 * The engine: runs a plan on a device. Creation resolves every address, launch and event once; a step then issues the plan's
 * actions to the streams in order without allocating and without waiting. Measured times are kept per action beside
 * the predicted ones.
 */
#ifndef SL_ENGINE_ENGINE_H
#define SL_ENGINE_ENGINE_H

#include "plan/plan.h"

typedef struct sl_engine sl_engine;

/* Commands and events a plan needs, for sl_device_config. */
void sl_engine_needs(const sl_plan *plan, int64_t *max_commands, int64_t *max_events);

/* The device's arenas must be at least the plan's extents (sl_plan_extent). Program, plan and device outlive the engine. Several
 * engines (training, validation) may share a device; their plans must agree on the placements of persistent objects. */
sl_status sl_engine_create(sl_device *device, const sl_program *program, const sl_plan *plan, sl_engine **engine);
void sl_engine_destroy(sl_engine *engine);

/* Between steps, from any thread: the content of a persistent, data or result object, at its placement. */
sl_status sl_engine_write(sl_engine *engine, int32_t object, size_t offset, const void *bytes,
                          size_t length); /* NULL: zeros */
sl_status sl_engine_read(sl_engine *engine, int32_t object, size_t offset, void *bytes, size_t length);

/* One step, start to end. */
sl_status sl_engine_step(sl_engine *engine);

/* What the last timed step did. A device that replays steps times only the first of them. spans: one per action of
 * the plan, seconds since the step began. */
const sl_span *sl_engine_spans(const sl_engine *engine);
/* Highest address really used so far in each tier (end of the highest byte any command touched). */
size_t sl_engine_peak_bytes(const sl_engine *engine, sl_tier tier);
/* Arithmetic per second that MFU and HFU are measured against (sl_costs.peak_flops); 0, the default: both stay 0. */
void sl_engine_set_peak_flops(sl_engine *engine, double peak_flops);
/* Measured figures of the last step in the form of the prediction. */
void sl_engine_summary(const sl_engine *engine, sl_summary *summary);

/* After a step that was not finite: runs the step's forward and backward tasks again one by one, without updates, and reports
 * the first task and tensor that produced a NaN or an infinity (`found` false: not reproduced). If weights are not finite
 * themselves, it reports these (task -1) instead of the task that reads them first. */
typedef struct sl_culprit {
    bool found;
    int32_t task;
    char task_name[160], tensor_name[160], value[32];
    int64_t element;
} sl_culprit;
sl_status sl_engine_diagnose(sl_engine *engine, sl_culprit *culprit);

#endif
