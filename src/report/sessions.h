/* The parts of a run between its resumes. */
#ifndef SL_REPORT_SESSIONS_H
#define SL_REPORT_SESSIONS_H

#include "report/chart.h"
#include "report/input.h"

/* Is a budget another one than in the session before? */
bool sl_session_changed(const sl_run_log *log, int64_t session);
/* Of a log with steps. */
int64_t sl_session_last_step(const sl_run_log *log, int64_t session);
/* Tokens per second: the median of its steps without the first, if it has others; NaN: it has none. */
double sl_session_speed(const sl_run_log *log, int64_t session);

/* Changes of a budget as marks for charts over the steps: between the last step under the old budget and the first under the
 * new one. */
enum { SL_MOST_SESSION_MARKS = 16 };
typedef struct sl_session_marks {
    sl_event_mark marks[SL_MOST_SESSION_MARKS];
    char texts[SL_MOST_SESSION_MARKS][64];
    int64_t n;
} sl_session_marks;
void sl_session_marks_of(const sl_run_log *log, sl_session_marks *marks);

#endif
