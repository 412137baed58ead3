/*
 * Copies a folder of data to a fast local one, once. Readers then open the copy.
 *
 *     TO/.staging      the start of the machine during which copying began
 *     TO/...           files, each under its name only when it is whole, with the source's time of change
 *     TO/.staged       written last: the number of files and bytes, and a hash of their names, sizes and times
 *
 * A copy with a marker that equals the source is used as it is. Without one, a file of the same size and time is kept and the others are
 * copied, so an interrupted copy goes on where it was; after a restart of the machine, nothing without a marker is trusted. What the
 * source lacks stays, so TO should be a folder of its own.
 */
#ifndef SL_DATA_IMAGE_STAGE_H
#define SL_DATA_IMAGE_STAGE_H

#include <stdint.h>

#include "core/pool.h"
#include "core/status.h"

typedef struct sl_stage_result {
    int64_t files, bytes;               /* of the source */
    int64_t copied_files, copied_bytes; /* by this call; 0: it was complete */
} sl_stage_result;

/* SL_E_DOES_NOT_FIT: what is to be copied and `reserve` more bytes are not free. The pool copies files side by side; NULL: one by one. */
sl_status sl_stage_folder(const char *from, const char *to, int64_t reserve, sl_pool *pool, sl_stage_result *result);

#endif
