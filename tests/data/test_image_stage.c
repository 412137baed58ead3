/* Staging: a whole copy with a marker, kept when it is complete, continued when it is not, and renewed when the source changed. */
#include <sys/stat.h>

#include "core/fault.h"
#include "core/file.h"
#include "core/mem.h"
#include "data/image/stage.h"
#include "test.h"

static void write_file(const char *name, const char *content)
{
    CHECK_OK(sl_file_write_atomic(test_path(name), content, strlen(content)));
}

static void check_file(const char *name, const char *content)
{
    char *got;
    size_t length;
    CHECK_OK(sl_file_read_all(test_path(name), 1 << 20, &got, &length));
    CHECK_STR(got, content);
    sl_free(got);
}

static sl_stage_result stage(sl_pool *pool)
{
    sl_stage_result result = {0};
    char from[512];
    snprintf(from, sizeof from, "%s", test_path("from"));
    CHECK_OK(sl_stage_folder(from, test_path("to"), 0, pool, &result));
    return result;
}

TEST(copies_once)
{
    sl_pool *pool;
    CHECK_OK(sl_pool_create(3, &pool));
    CHECK_OK(sl_dir_create(test_path("from/train/cat")));
    CHECK_OK(sl_dir_create(test_path("from/val")));
    write_file("from/train/cat/1.jpg", "one");
    write_file("from/train/cat/2.jpg", "two two");
    write_file("from/val/3.jpg", "");
    sl_stage_result result = stage(pool);
    CHECK(result.files == 3 && result.bytes == 10 && result.copied_files == 3 && result.copied_bytes == 10);
    check_file("to/train/cat/1.jpg", "one");
    check_file("to/train/cat/2.jpg", "two two");
    check_file("to/val/3.jpg", "");
    CHECK(sl_file_exists(test_path("to/.staged")));
    result = stage(pool);
    CHECK(result.files == 3 && result.copied_files == 0 && result.copied_bytes == 0);
    /* One file changes: only that one is copied. */
    write_file("from/train/cat/1.jpg", "one more");
    result = stage(NULL);
    CHECK(result.copied_files == 1 && result.copied_bytes == 8);
    check_file("to/train/cat/1.jpg", "one more");
    sl_pool_destroy(pool);
}

/* As a killed copy leaves it: no marker, a whole file, one that is missing, and a part. */
TEST(continues)
{
    sl_stage_result result = stage(NULL);
    CHECK(remove(test_path("to/.staged")) == 0 && remove(test_path("to/train/cat/2.jpg")) == 0);
    write_file("to/train/cat/2.jpg.part", "tw");
    result = stage(NULL);
    CHECK(result.copied_files == 1 && result.copied_bytes == 7);
    check_file("to/train/cat/2.jpg", "two two");
    /* The machine was restarted meanwhile: all of it is copied again. */
    CHECK(remove(test_path("to/.staged")) == 0);
    write_file("to/.staging", "another start");
    result = stage(NULL);
    CHECK_I64(result.copied_files, 3);
}

TEST(fails_without_a_marker)
{
    char from[512], to[512];
    sl_stage_result result;
    snprintf(from, sizeof from, "%s", test_path("from"));
    snprintf(to, sizeof to, "%s", test_path("other"));
    CHECK_FAILS(sl_stage_folder(test_path("nowhere"), to, 0, NULL, &result), SL_E_USAGE);
    CHECK_FAILS(sl_stage_folder(from, to, INT64_MAX / 2, NULL, &result), SL_E_DOES_NOT_FIT);
    CHECK_CONTAINS(sl_error_message(), "GB");
    int64_t failures = 0;
    for (int64_t k = 1; k < 40; k++) { /* any write fails: no marker, and the next call completes it */
        CHECK_OK(sl_dir_remove(to));
        sl_fault_arm(SL_FAULT_WRITE, k);
        sl_status status = sl_stage_folder(from, to, 0, NULL, &result);
        sl_fault_arm(SL_FAULT_WRITE, 0);
        failures += status != SL_OK;
        CHECK((status == SL_OK) == sl_file_exists(test_path("other/.staged")));
        CHECK_OK(sl_stage_folder(from, to, 0, NULL, &result));
        check_file("other/train/cat/2.jpg", "two two");
    }
    CHECK_MSG(failures > 2, "%lld failures", (long long) failures);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(copies_once);
    RUN(continues);
    RUN(fails_without_a_marker);
    return test_end();
}
