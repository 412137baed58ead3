/* Structs of callers that are older or newer than the library. */
#include "core/sized.h"
#include "test.h"

typedef struct figures {
    size_t struct_size;
    int64_t first, second;
} figures;

static char *struct_of(char *bytes, size_t size)
{
    memcpy(bytes, &size, sizeof size);
    return bytes;
}

TEST(sizes)
{
    static char caller[(1 << 16) + 1];
    CHECK_FAILS(sl_sized_check(NULL, "figures"), SL_E_USAGE);
    CHECK_FAILS(sl_sized_check(struct_of(caller, 0), "figures"), SL_E_USAGE);
    CHECK_FAILS(sl_sized_check(struct_of(caller, 2 * sizeof(size_t) - 1), "figures"), SL_E_USAGE);
    CHECK_OK(sl_sized_check(struct_of(caller, 2 * sizeof(size_t)), "figures"));
    CHECK_OK(sl_sized_check(struct_of(caller, 1 << 16), "figures"));
    CHECK_FAILS(sl_sized_check(struct_of(caller, (1 << 16) + 1), "figures"), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "figures has struct_size 65537: initialize it with SL_SIZED(figures)");
}

/* Both directions, by the caller's size; bytes behind the caller's struct stay. */
TEST(old_and_new_callers)
{
    const figures ours = {sizeof ours, 7, 9};
    char caller[sizeof ours + 9];
    for (size_t size = 2 * sizeof(size_t); size <= sizeof ours + 8; size++) {
        figures back;
        size_t both = SL_MIN(size, sizeof ours), theirs;
        memset(caller, 1, sizeof caller);
        CHECK_OK(sl_sized_put(struct_of(caller, size), &ours, sizeof ours, "figures"));
        memcpy(&theirs, caller, sizeof theirs);
        CHECK_U64(theirs, size);
        CHECK(memcmp(caller + sizeof theirs, (const char *) &ours + sizeof theirs, both - sizeof theirs) == 0);
        for (size_t i = both; i < size; i++)
            CHECK(caller[i] == 0);
        CHECK(caller[size] == 1);

        CHECK_OK(sl_sized_get(&back, caller, sizeof back, "figures"));
        CHECK(back.struct_size == sizeof back && back.first == 7);
        CHECK_I64(back.second, size > 2 * sizeof(size_t) ? 9 : 0); /* little-endian: its first byte holds it */
    }
    struct_of(caller, sizeof ours + 8);
    caller[sizeof ours + 7] = 1;
    CHECK_FAILS(sl_sized_get(&(figures){0}, caller, sizeof ours, "figures"), SL_E_UNSUPPORTED);
    CHECK_CONTAINS(sl_error_message(), "figures sets byte 31 of 32");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(sizes);
    RUN(old_and_new_callers);
    return test_end();
}
