/* Learning rate by step. Steps count from 1; the last step runs at the schedule's end value. */
#ifndef SL_TRAIN_SCHEDULE_H
#define SL_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum sl_schedule_kind { SL_SCHEDULE_CONSTANT, SL_SCHEDULE_COSINE, SL_SCHEDULE_WSD } sl_schedule_kind;

typedef struct sl_schedule {
    sl_schedule_kind kind;
    double peak, least; /* learning rates */
    int64_t warmup, steps;
    int64_t decay; /* WSD: how many of the last steps go down */
} sl_schedule;

double sl_schedule_at(const sl_schedule *schedule, int64_t step);

#endif
