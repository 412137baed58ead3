/* Public structs by size. No public struct is smaller than two words: a smaller struct_size is zero or uninitialized.
 * */
#include "core/sized.h"

#include <string.h>

static sl_status read_size(const void *caller, const char *name, size_t *size)
{
    const size_t largest = 1 << 16;
    if (!caller)
        return sl_fail(SL_E_USAGE, "the pointer to %s is NULL", name);
    memcpy(size, caller, sizeof *size);
    if (*size < 2 * sizeof *size || *size > largest)
        return sl_fail(SL_E_USAGE, "%s has struct_size %zu: initialize it with SL_SIZED(%s)", name, *size, name);
    return SL_OK;
}

sl_status sl_sized_check(const void *to, const char *name)
{
    size_t size;
    return read_size(to, name, &size);
}

sl_status sl_sized_put(void *to, const void *from, size_t size, const char *name)
{
    size_t theirs = 0;
    SL_TRY(read_size(to, name, &theirs));
    size_t both = SL_MIN(theirs, size), first = sizeof theirs;
    memcpy((char *) to + first, (const char *) from + first, both - first);
    memset((char *) to + both, 0, theirs - both);
    return SL_OK;
}

sl_status sl_sized_get(void *to, const void *from, size_t size, const char *name)
{
    size_t theirs = 0;
    SL_TRY(read_size(from, name, &theirs));
    for (size_t i = size; i < theirs; i++)
        if (((const char *) from)[i])
            return sl_fail(SL_E_UNSUPPORTED,
                           "%s sets byte %zu of %zu, but this version of Sluice (%s) knows the first %zu only: leave "
                           "the newer fields at zero, or use a newer library",
                           name, i, theirs, SL_VERSION, size);
    memset(to, 0, size);
    memcpy(to, from, SL_MIN(theirs, size));
    memcpy(to, &size, sizeof size);
    return SL_OK;
}
