/* Large page-backed memory for arenas: huge pages where the system grants them. Not counted by sl_heap_*: arenas have their own
 * budgets. */
#ifndef SL_CORE_PAGES_H
#define SL_CORE_PAGES_H

#include <stddef.h>

#include "core/status.h"

/* Zeros, not touched yet. */
sl_status sl_pages_map(size_t bytes, void **out);
void sl_pages_unmap(void *memory, size_t bytes);

/* Memory that idle cores touch in the background, for an arena that will be wanted soon and whose size is known roughly. */
typedef struct sl_pages_ahead sl_pages_ahead;
sl_status sl_pages_ahead_begin(size_t bytes, sl_pages_ahead **ahead);
void sl_pages_ahead_stop(sl_pages_ahead *ahead);          /* touches no more... */
void sl_pages_ahead_go_on(sl_pages_ahead *ahead);         /* ...until this; NULL is fine for both */
size_t sl_pages_ahead_bytes(const sl_pages_ahead *ahead); /* until they are taken */
/* Ends the touching and hands over exactly `bytes` as sl_pages_map does, those that were touched in front. The second time, and of
 * NULL, it is sl_pages_map. */
sl_status sl_pages_ahead_take(sl_pages_ahead *ahead, size_t bytes, void **out);
/* Frees what was not taken. NULL is fine. */
void sl_pages_ahead_end(sl_pages_ahead *ahead);

#endif
