/*
 * One tier's addresses while the sweep walks the tasks: a sorted row of segments without holes. An allocation is cut out
 * of a run of free neighbours. When it is freed, its segment records the last users and when they end. Records of
 * neighbours are merged only after both have ended, so a new allocation never waits for bytes that it does not cover.
 *
 * A row of a few hundred segments is scanned faster than any tree is walked, and the order is the address order, which
 * the search for the cheapest window to clear needs anyway.
 */
#include "plan/internal.h"

#include <math.h>
#include <string.h>

static sl_status reserve(sl_arena *arena, int32_t count)
{
    if (count <= arena->capacity)
        return SL_OK;
    int32_t capacity = SL_MAX(count, arena->capacity * 2 + 64);
    SL_TRY(sl_grow(&arena->segments, arena->capacity, capacity, sizeof *arena->segments));
    arena->capacity = capacity;
    return SL_OK;
}

static void replace(sl_arena *arena, int32_t first, int32_t n_old, const sl_segment *with, int32_t n_new)
{
    sl_segment *at = arena->segments + first;
    memmove(at + n_new, at + n_old, (size_t) (arena->count - first - n_old) * sizeof *at);
    memcpy(at, with, (size_t) n_new * sizeof *at);
    arena->count += n_new - n_old;
}

/* A free segment that lies on both sides of the fence becomes two. */
static void split(sl_arena *arena, int32_t i)
{
    const sl_segment *segment = &arena->segments[i];
    if (segment->address >= arena->fence || segment->address + segment->bytes <= arena->fence)
        return;
    sl_segment parts[2] = {*segment, *segment};
    parts[0].bytes = arena->fence - segment->address;
    parts[1].address = arena->fence;
    parts[1].bytes -= parts[0].bytes;
    replace(arena, i, 1, parts, 2);
}

sl_status sl_arena_reset(sl_arena *arena, size_t budget, size_t fence)
{
    SL_TRY(reserve(arena, 64));
    arena->count = 1;
    arena->peak = 0;
    arena->fence = fence;
    arena->segments[0] = (sl_segment){.address = 0, .bytes = budget / SL_ALIGN * SL_ALIGN, .place = -1};
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        arena->segments[0].last[s] = -1;
    split(arena, 0);
    return SL_OK;
}

void sl_arena_free(sl_arena *arena)
{
    sl_free(arena->segments);
}

static bool usable(const sl_segment *segment, double ready_s)
{
    return segment->place < 0 && segment->ready_s <= ready_s;
}

/* Segments below the address `end`. */
static int32_t count_below(const sl_arena *arena, size_t end)
{
    int32_t count = arena->count;
    while (count > 0 && arena->segments[count - 1].address >= end)
        count--;
    return count;
}

int32_t sl_arena_find(const sl_arena *arena, size_t bytes, double ready_s, size_t end, bool low, bool best)
{
    int32_t found = -1, count = count_below(arena, end);
    size_t found_bytes = 0;
    for (int32_t i = 0; i < count; i++) {
        if (!usable(&arena->segments[i], ready_s))
            continue;
        int32_t begin = i;
        size_t run = 0;
        for (; i < count && usable(&arena->segments[i], ready_s); i++)
            run += arena->segments[i].bytes;
        if (run < bytes)
            continue;
        if (found < 0 || (best ? run < found_bytes || (run == found_bytes && !low) : !low)) {
            found = low ? begin : i - 1;
            found_bytes = run;
        }
        if (low && (!best || run == bytes))
            break;
    }
    return found;
}

static double how_long(int32_t until, int32_t now)
{
    return 1.0 + SL_MAX(until - now, 0);
}

/* As a ratio: lifetimes of 10 and 20 tasks differ as much as 1,000 and 2,000. */
static double apart(double a, double b)
{
    return a > b ? a / b : b / a;
}

int32_t sl_arena_find_beside(const sl_arena *arena, size_t bytes, double ready_s, size_t end, int32_t now,
                             int32_t until, bool *low)
{
    int32_t found = -1, count = count_below(arena, end);
    double best = INFINITY, own = how_long(until, now);
    for (int32_t i = 0; i < count; i++) {
        int32_t begin = i;
        size_t run = 0;
        for (; i < count && usable(&arena->segments[i], ready_s); i++)
            run += arena->segments[i].bytes;
        if (run < bytes)
            continue;
        for (int side = 0; side < 2; side++) {
            int32_t beside = side ? i : begin - 1;
            double other = 1;
            if (beside < 0)
                other = how_long(INT32_MAX, 0);
            else if (beside < count && arena->segments[beside].place >= 0)
                other = how_long(arena->segments[beside].until, now);
            if (apart(other, own) < best) {
                best = apart(other, own);
                found = side ? i - 1 : begin;
                *low = !side;
            }
        }
    }
    return found;
}

double sl_arena_leaving(const sl_arena *arena, double now_s)
{
    double bytes = 0;
    for (int32_t i = 0; i < arena->count; i++)
        if (arena->segments[i].place < 0 && arena->segments[i].ready_s > now_s)
            bytes += (double) arena->segments[i].bytes;
    return bytes;
}

size_t sl_arena_largest(const sl_arena *arena)
{
    size_t largest = 0, run = 0;
    for (int32_t i = 0; i < arena->count; i++) {
        run = arena->segments[i].place < 0 ? run + arena->segments[i].bytes : 0;
        largest = SL_MAX(largest, run);
    }
    return largest;
}

sl_status sl_arena_take(sl_arena *arena, int32_t at, size_t bytes, bool low, int32_t place, int32_t until,
                        int32_t last[SL_STREAM_COUNT], size_t *address)
{
    SL_TRY(reserve(arena, arena->count + 3)); /* one more when it is released across the fence */
    int32_t first = at, end = at;
    size_t have = 0;
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        last[s] = -1;
    for (int32_t i = at; have < bytes; i += low ? 1 : -1) {
        const sl_segment *segment = &arena->segments[i];
        SL_ASSERT(segment->place < 0);
        have += segment->bytes;
        for (int s = 0; s < SL_STREAM_COUNT; s++)
            last[s] = SL_MAX(last[s], segment->last[s]);
        first = SL_MIN(first, i);
        end = SL_MAX(end, i);
    }
    sl_segment with[2];
    int32_t n = 0;
    sl_segment rest = arena->segments[low ? end : first], taken = {.bytes = bytes, .place = place, .until = until};
    taken.address = low ? arena->segments[first].address : rest.address + (have - bytes);
    rest.bytes = have - bytes;
    if (low) {
        rest.address = taken.address + bytes;
        with[n++] = taken;
    }
    if (rest.bytes)
        with[n++] = rest;
    if (!low)
        with[n++] = taken;
    replace(arena, first, end - first + 1, with, n);
    arena->peak = SL_MAX(arena->peak, taken.address + bytes);
    *address = taken.address;
    return SL_OK;
}

int32_t sl_arena_index(const sl_arena *arena, size_t address)
{
    int32_t low = 0, high = arena->count - 1;
    while (low < high) {
        int32_t middle = (low + high + 1) / 2;
        if (arena->segments[middle].address <= address)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static bool mergeable(const sl_arena *arena, int32_t i, double now_s)
{
    const sl_segment *a = &arena->segments[i], *b = a + 1;
    return b->address != arena->fence && a->place < 0 && b->place < 0 && a->ready_s <= now_s && b->ready_s <= now_s;
}

static void merge(sl_arena *arena, int32_t i)
{
    sl_segment joined = arena->segments[i];
    const sl_segment *next = &arena->segments[i + 1];
    joined.bytes += next->bytes;
    joined.ready_s = SL_MAX(joined.ready_s, next->ready_s);
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        joined.last[s] = SL_MAX(joined.last[s], next->last[s]);
    replace(arena, i, 2, &joined, 1);
}

void sl_arena_release(sl_arena *arena, size_t address, const int32_t last[SL_STREAM_COUNT], double ready_s,
                      double now_s)
{
    int32_t i = sl_arena_index(arena, address);
    sl_segment *segment = &arena->segments[i];
    SL_ASSERT(segment->address == address && segment->place >= 0);
    segment->place = -1;
    segment->ready_s = ready_s;
    memcpy(segment->last, last, sizeof segment->last);
    if (address < arena->fence && address + segment->bytes > arena->fence)
        split(arena, i);
    if (i + 1 < arena->count && mergeable(arena, i, now_s))
        merge(arena, i);
    if (i > 0 && mergeable(arena, i - 1, now_s))
        merge(arena, i - 1);
}
