/* The heap, counted. Every byte Sluice takes outside the two tiers' arenas goes through here, so that the host budget
 * is honest and a test can assert that steps allocate nothing. All functions are thread-safe. */
#ifndef SL_CORE_MEM_H
#define SL_CORE_MEM_H

#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

/* Zeroed memory for `count` items of `size` bytes into *out (typed pointer). SL_E_MEMORY with the size on failure. */
#define sl_alloc(out, count, size) sl_alloc_impl((void **) (void *) (out), (size_t) (count), (size_t) (size), 0)
/* Aligned to `align` (a power of two, at least 16). Freed with sl_free too. */
#define sl_alloc_aligned(out, count, size, align) \
    sl_alloc_impl((void **) (void *) (out), (size_t) (count), (size_t) (size), (align))
/* Grows *inout to `count` items, keeping the content, zeroing what is new; `old_count` is what it held. */
#define sl_grow(inout, old_count, count, size) \
    sl_grow_impl((void **) (void *) (inout), (size_t) (old_count), (size_t) (count), (size_t) (size))
void sl_free(void *memory);
sl_status sl_strdup(const char *text, char **out);

sl_status sl_alloc_impl(void **out, size_t count, size_t size, size_t align);
sl_status sl_grow_impl(void **inout, size_t old_count, size_t count, size_t size);

size_t sl_heap_bytes(void);      /* now */
size_t sl_heap_peak_bytes(void); /* since the start or the last reset */
uint64_t sl_heap_calls(void);    /* allocations ever made */
void sl_heap_peak_reset(void);
/* From now on no allocation may take the heap beyond so many bytes: it fails with SL_E_DOES_NOT_FIT. SIZE_MAX: no limit, as at first. */
void sl_heap_limit(size_t bytes);

/* Memory with the lifetime of one owner: allocate often, free once. Not thread-safe. */
typedef struct sl_region sl_region;
sl_status sl_region_create(sl_region **region);
void sl_region_destroy(sl_region *region);
size_t sl_region_bytes(const sl_region *region); /* of the heap */
/* Zeroed, 16-byte aligned. */
#define sl_region_alloc(region, out, count, size) \
    sl_region_alloc_impl((region), (void **) (void *) (out), (size_t) (count), (size_t) (size))
sl_status sl_region_alloc_impl(sl_region *region, void **out, size_t count, size_t size);
sl_status sl_region_strdup(sl_region *region, const char *text, const char **out);
sl_status sl_region_printf(sl_region *region, const char **out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
