/* A block is  [ slack | header | user bytes ]: the header sits right before the user's pointer, so sl_free finds the
 * size to take off the count and the start to hand back. Zeroes come from calloc, which gets large blocks from the
 * kernel already zero: a big table that is only partly used costs only the pages it touches. */
#include "core/mem.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/text.h"

enum { MAGIC = 0x51c3, REGION_FIRST = 4096, REGION_LARGEST = 1 << 20 };

typedef struct header {
    size_t total;    /* bytes taken from the system */
    uint32_t offset; /* from the start of the block to the user's bytes */
    uint32_t magic;  /* catches a pointer that is not ours */
} header;
_Static_assert(sizeof(header) == 16, "the header keeps 16-byte alignment");

static atomic_size_t heap_now, heap_peak, heap_limit = SIZE_MAX;
static atomic_ullong heap_count;

static void count_up(size_t bytes)
{
    size_t now = atomic_fetch_add(&heap_now, bytes) + bytes;
    size_t peak = atomic_load(&heap_peak);
    while (now > peak && !atomic_compare_exchange_weak(&heap_peak, &peak, now))
        ;
    atomic_fetch_add(&heap_count, 1);
}

static sl_status out_of_memory(size_t count, size_t size)
{
    size_t bytes;
    char need[32], now[32];
    if (__builtin_mul_overflow(count, size, &bytes))
        return sl_fail(SL_E_MEMORY, "out of memory: %zu items of %zu bytes are more than can be addressed", count,
                       size);
    return sl_fail(SL_E_MEMORY,
                   "out of memory: needed %s beside the %s in use; close other programs or use a smaller job",
                   sl_format_bytes(bytes, need), sl_format_bytes(sl_heap_bytes(), now));
}

static sl_status beyond_limit(size_t bytes, size_t limit)
{
    char need[32], now[32], most[32];
    return sl_fail(SL_E_DOES_NOT_FIT, "%s beside the %s in use are more than the host budget of %s",
                   sl_format_bytes(bytes, need), sl_format_bytes(sl_heap_bytes(), now), sl_format_bytes(limit, most));
}

sl_status sl_alloc_impl(void **out, size_t count, size_t size, size_t align)
{
    size_t bytes, total;
    if (align < 16)
        align = 16;
    SL_ASSERT((align & (align - 1)) == 0 && align <= UINT32_MAX / 2);
    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, align, &total) ||
        total > PTRDIFF_MAX || sl_fault_hit(SL_FAULT_ALLOC))
        return out_of_memory(count, size);
    const size_t limit = atomic_load(&heap_limit), now = atomic_load(&heap_now);
    if (total > limit || now > limit - total)
        return beyond_limit(bytes, limit);
    char *block = calloc(1, total);
    if (!block)
        return out_of_memory(count, size);
    uintptr_t start = (uintptr_t) block;
    size_t offset = (size_t) (SL_ROUND_UP(start + sizeof(header), align) - start);
    header *head = (header *) (void *) (block + offset - sizeof(header));
    *head = (header){total, (uint32_t) offset, MAGIC};
    count_up(total);
    *out = block + offset;
    return SL_OK;
}

void sl_free(void *memory)
{
    if (!memory)
        return;
    header *head = (header *) memory - 1;
    SL_ASSERT(head->magic == MAGIC);
    head->magic = 0;
    atomic_fetch_sub(&heap_now, head->total);
    free((char *) memory - head->offset);
}

/* A new block and a copy, rather than realloc: the old content stays valid when the new block cannot be had. */
sl_status sl_grow_impl(void **inout, size_t old_count, size_t count, size_t size)
{
    void *fresh;
    SL_TRY(sl_alloc_impl(&fresh, count, size, 0));
    if (*inout)
        memcpy(fresh, *inout, SL_MIN(old_count, count) * size);
    sl_free(*inout);
    *inout = fresh;
    return SL_OK;
}

sl_status sl_strdup(const char *text, char **out)
{
    size_t bytes = strlen(text) + 1;
    SL_TRY(sl_alloc(out, bytes, 1));
    memcpy(*out, text, bytes);
    return SL_OK;
}

size_t sl_heap_bytes(void)
{
    return atomic_load(&heap_now);
}

size_t sl_heap_peak_bytes(void)
{
    return atomic_load(&heap_peak);
}

uint64_t sl_heap_calls(void)
{
    return atomic_load(&heap_count);
}

void sl_heap_peak_reset(void)
{
    atomic_store(&heap_peak, atomic_load(&heap_now));
}

void sl_heap_limit(size_t bytes)
{
    atomic_store(&heap_limit, bytes);
}

/* ---- regions: a list of growing blocks, filled front to back ---- */

typedef struct region_block {
    struct region_block *next;
    size_t used, capacity; /* of what follows this struct */
    size_t padding;        /* keeps what follows 16-byte aligned */
} region_block;

struct sl_region {
    region_block *first; /* the one being filled */
    size_t next_capacity;
};

sl_status sl_region_create(sl_region **region)
{
    SL_TRY(sl_alloc(region, 1, sizeof **region));
    (*region)->next_capacity = REGION_FIRST;
    return SL_OK;
}

void sl_region_destroy(sl_region *region)
{
    if (!region)
        return;
    for (region_block *block = region->first, *next; block; block = next) {
        next = block->next;
        sl_free(block);
    }
    sl_free(region);
}

size_t sl_region_bytes(const sl_region *region)
{
    size_t bytes = sizeof(header) + sizeof *region;
    for (const region_block *block = region->first; block; block = block->next)
        bytes += sizeof(header) + sizeof *block + block->capacity;
    return bytes;
}

/* A request too large for the next block gets one of its own, put behind the first, which goes on being filled. */
static sl_status add_block(sl_region *region, size_t bytes, region_block **out)
{
    bool own = bytes > region->next_capacity / 2;
    size_t capacity = own ? bytes : region->next_capacity;
    region_block *block;
    SL_TRY(sl_alloc(&block, capacity + sizeof *block, 1));
    block->capacity = capacity;
    if (own && region->first) {
        block->next = region->first->next;
        region->first->next = block;
    } else {
        block->next = region->first;
        region->first = block;
    }
    if (!own)
        region->next_capacity = SL_MIN(region->next_capacity * 2, (size_t) REGION_LARGEST);
    *out = block;
    return SL_OK;
}

sl_status sl_region_alloc_impl(sl_region *region, void **out, size_t count, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes) || bytes > PTRDIFF_MAX / 2)
        return out_of_memory(count, size);
    bytes = SL_ROUND_UP(SL_MAX(bytes, (size_t) 1), (size_t) 16);
    region_block *block = region->first;
    if (!block || block->capacity - block->used < bytes)
        SL_TRY(add_block(region, bytes, &block));
    *out = (char *) (block + 1) + block->used;
    block->used += bytes;
    return SL_OK;
}

sl_status sl_region_strdup(sl_region *region, const char *text, const char **out)
{
    size_t bytes = strlen(text) + 1;
    char *copy;
    SL_TRY(sl_region_alloc(region, &copy, bytes, 1));
    memcpy(copy, text, bytes);
    *out = copy;
    return SL_OK;
}

sl_status sl_region_printf(sl_region *region, const char **out, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    SL_ASSERT(length >= 0);
    char *text;
    SL_TRY(sl_region_alloc(region, &text, (size_t) length + 1, 1));
    va_start(arguments, format);
    vsnprintf(text, (size_t) length + 1, format, arguments);
    va_end(arguments);
    *out = text;
    return SL_OK;
}
