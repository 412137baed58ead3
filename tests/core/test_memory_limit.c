/* Limits of control groups, from files as the kernel shows them. */
#include <sys/stat.h>

#include "core/memory_limit.h"
#include "test.h"

/* Writes the test folder's path, folders included. */
static void put(const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", test_dir(), path);
    for (char *at = full + strlen(test_dir()) + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        mkdir(full, 0777);
        *at = '/';
    }
    FILE *file = fopen(full, "w");
    REQUIRE(file != NULL);
    fputs(text, file);
    fclose(file);
}

TEST(the_lowest_on_the_way_up_counts)
{
    CHECK_U64(sl_memory_limit(test_dir()), SIZE_MAX); /* no such files */
    put("proc/self/cgroup", "0::/job/step\n");
    CHECK_U64(sl_memory_limit(test_dir()), SIZE_MAX);
    put("sys/fs/cgroup/job/step/memory.max", "max\n");
    CHECK_U64(sl_memory_limit(test_dir()), SIZE_MAX);
    put("sys/fs/cgroup/job/memory.max", "1000000\n");
    CHECK_U64(sl_memory_limit(test_dir()), 1000000);
    put("sys/fs/cgroup/job/step/memory.max", "700000\n");
    CHECK_U64(sl_memory_limit(test_dir()), 700000);
    put("sys/fs/cgroup/memory.max", "600000\n"); /* a container: its own group is the root */
    CHECK_U64(sl_memory_limit(test_dir()), 600000);
}

TEST(version_one)
{
    put("proc/self/cgroup", "9:cpu,cpuacct:/box\n8:memory_of_something:/box\n7:hugetlb,memory:/box\n0::/\n");
    put("sys/fs/cgroup/memory.max", "max\n");
    put("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "500000\n");
    CHECK_U64(sl_memory_limit(test_dir()), 500000);
    put("proc/self/cgroup", "8:memory_of_something:/box\n");
    CHECK_U64(sl_memory_limit(test_dir()), SIZE_MAX);
    put("proc/self/cgroup", "nonsense\n");
    CHECK_U64(sl_memory_limit(test_dir()), SIZE_MAX);
}

TEST(this_machine)
{
    CHECK(sl_memory_bytes() > 0 && sl_memory_bytes() < SIZE_MAX);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(the_lowest_on_the_way_up_counts);
    RUN(version_one);
    RUN(this_machine);
    return test_end();
}
