/* Files and folders across a power cut: a file is the old one or the whole new one, and what was reported as done stays. */
#include "core/file.h"
#include "crash_disk.h"

static char root[300], outside[300];

static void make_root(void *context)
{
    char command[900];
    (void) context;
    snprintf(command, sizeof command, "rm -rf '%s' && mkdir '%s' && printf old >'%s/file'", root, root, root);
    REQUIRE(system(command) == 0);
}

static char *path_in(const char *name)
{
    static char path[400];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return path;
}

static const char *content_of(const char *name)
{
    static char text[100];
    FILE *file = fopen(path_in(name), "r");
    size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
    text[length] = 0;
    if (file)
        fclose(file);
    return file ? text : "(none)";
}

static int replace(void *context)
{
    (void) context;
    return sl_file_write_atomic(path_in("file"), "new content", 11) != SL_OK;
}

static void check_replaced(void *context, bool succeeded, const char *what)
{
    (void) context;
    const char *text = content_of("file");
    bool is_new = strcmp(text, "new content") == 0;
    CHECK_MSG(is_new || (!succeeded && strcmp(text, "old") == 0), "%s: \"%s\"", what, text);
}

TEST(a_file_is_old_or_new)
{
    crash_everywhere(root, make_root, replace, check_replaced, NULL);
    crash_failing_everywhere(root, EIO, make_root, replace, check_replaced, NULL);
    crash_failing_everywhere(root, ENOSPC, make_root, replace, check_replaced, NULL);
}

static int make_folders(void *context)
{
    (void) context;
    return sl_dir_create(path_in("a/b/c")) != SL_OK || sl_file_write_atomic(path_in("a/b/c/file"), "x", 1) != SL_OK;
}

static void check_folders(void *context, bool succeeded, const char *what)
{
    (void) context;
    CHECK_MSG(!succeeded || strcmp(content_of("a/b/c/file"), "x") == 0, "%s: a/b/c/file is gone", what);
}

TEST(new_folders_stay)
{
    crash_everywhere(root, make_root, make_folders, check_folders, NULL);
    crash_failing_everywhere(root, EIO, make_root, make_folders, check_folders, NULL);
}

/* A rename changes two folders, and both are synced behind it. */
TEST(both_folders_of_a_rename_are_synced)
{
    char from[400], to[400];
    make_root(NULL);
    CHECK_OK(sl_dir_create(path_in("from/it")));
    snprintf(from, sizeof from, "%s", path_in("from/it"));
    CHECK_OK(sl_dir_create(path_in("to")));
    snprintf(to, sizeof to, "%s", path_in("to/it"));
    crash_begin(root);
    CHECK_OK(sl_rename_durable(from, to));
    REQUIRE(crash->calls == 3);
    CHECK(crash->list[0].kind == CRASH_RENAME && crash->list[1].kind == CRASH_SYNC &&
          crash->list[2].kind == CRASH_SYNC);
    CHECK_STR(crash->list[1].path, path_in("to"));
    CHECK_STR(crash->list[2].path, path_in("from"));
    crash_end();
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    REQUIRE(realpath(test_dir(), outside) != NULL);
    snprintf(root, sizeof root, "%.250s/root", outside);
    RUN(a_file_is_old_or_new);
    RUN(new_folders_stay);
    RUN(both_folders_of_a_rename_are_synced);
    return test_end();
}
