/* Files: whatever fails, a reader sees the old content or the whole new one, and nothing is left lying about. */
#include "core/file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "core/events.h"
#include "core/fault.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "core/rng.h"
#include "test.h"

static void put(const char *path, const char *text)
{
    CHECK_OK(sl_file_write_atomic(path, text, strlen(text)));
}

static bool holds(const char *path, const char *want)
{
    char *text;
    size_t length;
    if (sl_file_read_all(path, 1 << 24, &text, &length) != SL_OK)
        return false;
    bool same = length == strlen(want) && memcmp(text, want, length) == 0 && text[length] == 0;
    sl_free(text);
    return same;
}

TEST(read_all)
{
    const char *path = test_path("a.txt");
    char *text = NULL;
    size_t length = 0;
    put(path, "hello");
    CHECK(holds(path, "hello"));
    CHECK_OK(sl_file_read_all(path, 5, &text, &length));
    sl_free(text);
    text = NULL;
    CHECK_FAILS(sl_file_read_all(path, 4, &text, &length), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), path);
    CHECK_FAILS(sl_file_read_all(test_path("absent"), 10, &text, &length), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "no such file");
    CHECK_FAILS(sl_file_read_all(test_dir(), 10, &text, &length), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "folder");
    CHECK(text == NULL);
    CHECK_OK(sl_file_read_all("/proc/self/status", 1 << 20, &text, &length)); /* says it has no bytes, but has */
    CHECK(length > 100);
    sl_free(text);
    put(path, "");
    CHECK(holds(path, ""));
    int64_t size = -1;
    CHECK_OK(sl_file_size(path, &size));
    CHECK_I64(size, 0);
    CHECK(sl_file_exists(path) && !sl_dir_exists(path) && !sl_file_exists(test_dir()) && sl_dir_exists(test_dir()));
}

TEST(reader_checks_every_range)
{
    const char *path = test_path("r.bin");
    sl_reader *reader;
    char bytes[8] = {0};
    put(path, "0123456789");
    CHECK_OK(sl_reader_open(path, &reader));
    CHECK_I64(sl_reader_size(reader), 10);
    CHECK_OK(sl_reader_read(reader, 7, bytes, 3));
    CHECK_STR(bytes, "789");
    CHECK_OK(sl_reader_read(reader, 10, bytes, 0));
    CHECK_FAILS(sl_reader_read(reader, 8, bytes, 3), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "ends at byte 10, but 3 bytes at offset 8");
    CHECK_FAILS(sl_reader_read(reader, -1, bytes, 1), SL_E_FORMAT);
    CHECK_FAILS(sl_reader_read(reader, 11, bytes, 0), SL_E_FORMAT);
    CHECK_FAILS(sl_reader_read(reader, 1, bytes, SIZE_MAX), SL_E_FORMAT);
    CHECK_FAILS(sl_reader_read(reader, INT64_MAX, bytes, 1), SL_E_FORMAT);
    REQUIRE(truncate(path, 4) == 0);
    CHECK_FAILS(sl_reader_read(reader, 2, bytes, 5), SL_E_FORMAT); /* it shrank under us */
    sl_fault_arm(SL_FAULT_READ, 1);
    CHECK_FAILS(sl_reader_read(reader, 0, bytes, 1), SL_E_IO);
    sl_fault_arm(SL_FAULT_READ, 0);
    sl_reader_close(reader);
    sl_reader_close(NULL);
    CHECK_FAILS(sl_reader_open(test_dir(), &reader), SL_E_IO);
    CHECK_FAILS(sl_reader_open("/dev/null", &reader), SL_E_IO);
}

/* Sizes around the buffer's, in pieces of many sizes: bytes, checksum and size must come out right. */
TEST(writer_writes_what_it_was_given)
{
    enum { MOST = 3 << 20 };
    unsigned char *data;
    CHECK_OK(sl_alloc(&data, MOST, 1));
    for (int64_t i = 0; i < MOST / 4; i++)
        memcpy(data + i * 4, &sl_philox(1, (uint64_t) i, 0).v[0], 4);
    static const size_t sizes[] = {0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, MOST},
                        pieces[] = {4093, 1 << 19, 1 << 20, MOST};
    for (int64_t s = 0; s < SL_COUNT(sizes); s++)
        for (int64_t p = 0; p < SL_COUNT(pieces); p++) {
            sl_writer *writer;
            char *back;
            size_t length;
            const char *path = test_path("w.bin");
            CHECK_OK(sl_writer_open(path, &writer));
            for (size_t at = 0; at < sizes[s]; at += pieces[p])
                CHECK_OK(sl_writer_write(writer, data + at, SL_MIN(pieces[p], sizes[s] - at)));
            CHECK_U64(sl_writer_checksum(writer), sl_hash64(data, sizes[s], 0));
            CHECK_OK(sl_writer_commit(writer));
            sl_writer_destroy(writer);
            CHECK_OK(sl_file_read_all(path, MOST, &back, &length));
            CHECK(length == sizes[s] && memcmp(back, data, length) == 0);
            sl_free(back);
        }
    sl_free(data);
}

static sl_status write_big(const char *path, const char *data, size_t size)
{
    sl_writer *writer;
    sl_status status;
    SL_TRY(sl_writer_open(path, &writer));
    for (size_t at = 0; at < size; at += 700000)
        SL_TRY_GOTO(sl_writer_write(writer, data + at, SL_MIN((size_t) 700000, size - at)), done);
    status = sl_writer_commit(writer);
done:
    sl_writer_destroy(writer);
    return status;
}

/* The k-th event of each kind fails, for every k there is. */
TEST(atomic_under_every_fault)
{
    enum { SIZE = 3000000 };
    char *fresh;
    CHECK_OK(sl_alloc(&fresh, SIZE + 1, 1));
    memset(fresh, 'n', SIZE);
    const char *path = test_path("model.bin");
    char temporary[600];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    static const sl_fault_kind kinds[] = {SL_FAULT_ALLOC, SL_FAULT_OPEN, SL_FAULT_WRITE, SL_FAULT_SYNC,
                                          SL_FAULT_RENAME};
    int64_t walked = 0;
    for (int64_t i = 0; i < SL_COUNT(kinds); i++)
        for (int64_t k = 1;; k++) {
            put(path, "old");
            size_t heap = sl_heap_bytes();
            sl_fault_arm(kinds[i], k);
            sl_status status = write_big(path, fresh, SIZE);
            int64_t events = sl_fault_events(kinds[i]);
            sl_fault_arm(kinds[i], 0);
            bool is_old = holds(path, "old"), is_new = holds(path, fresh);
            CHECK_MSG(is_old || is_new, "kind %d, event %d: neither old nor new", (int) kinds[i], (int) k);
            CHECK(status != SL_OK || is_new);
            CHECK_MSG(!sl_file_exists(temporary), "kind %d, event %d: temporary left", (int) kinds[i], (int) k);
            CHECK_I64(sl_heap_bytes(), heap);
            if (events < k) {
                CHECK(status == SL_OK);
                break;
            }
            walked++;
            CHECK_MSG(status != SL_OK, "kind %d, event %d: not reported", (int) kinds[i], (int) k);
            CHECK_CONTAINS(sl_error_message(), kinds[i] == SL_FAULT_ALLOC ? "memory" : test_dir());
            if (kinds[i] == SL_FAULT_WRITE)
                CHECK_CONTAINS(sl_error_message(), "no space left on device (needs ");
        }
    CHECK(walked >= 12);
    sl_free(fresh);
}

/* An error that the caller swallowed must not be published by a later commit. */
TEST(a_failed_writer_stays_failed)
{
    sl_writer *writer;
    const char *path = test_path("swallowed.bin");
    static char block[1 << 20];
    CHECK_OK(sl_writer_open(path, &writer));
    sl_fault_arm(SL_FAULT_WRITE, 1);
    CHECK_FAILS(sl_writer_write(writer, block, sizeof block), SL_E_IO);
    sl_fault_arm(SL_FAULT_WRITE, 0);
    CHECK_FAILS(sl_writer_write(writer, block, 1), SL_E_IO);
    CHECK_FAILS(sl_writer_commit(writer), SL_E_IO);
    sl_writer_destroy(writer);
    sl_writer_destroy(NULL);
    CHECK(!sl_file_exists(path));
}

TEST(a_really_full_disk)
{
    int fd = open("/dev/full", O_WRONLY);
    if (fd < 0)
        return;
    close(fd);
    sl_events *events;
    CHECK_FAILS(sl_events_open("/proc/nowhere/x", &events), SL_E_IO);
    /* A writer's temporary cannot be /dev/full itself, but a link can point there. */
    const char *path = test_path("full");
    char temporary[600];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    REQUIRE(symlink("/dev/full", temporary) == 0);
    CHECK_FAILS(sl_file_write_atomic(path, "abc", 3), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(),
                   "no space left on device (needs 3 more bytes); free some space or use another --out");
    CHECK(!sl_file_exists(path));
}

TEST(links_and_devices)
{
    char path[256], link[256], *text;
    size_t length;
    struct stat there;
    snprintf(path, sizeof path, "%s", test_path("target.txt"));
    snprintf(link, sizeof link, "%s", test_path("link.txt"));
    CHECK_OK(sl_file_write_atomic(path, "old", 3));
    REQUIRE(symlink("target.txt", link) == 0);
    CHECK_OK(sl_file_write_atomic(link, "new", 3));
    CHECK(lstat(link, &there) == 0 && S_ISLNK(there.st_mode));
    REQUIRE(sl_file_read_all(path, 100, &text, &length) == SL_OK);
    CHECK(length == 3 && memcmp(text, "new", 3) == 0);
    sl_free(text);
    REQUIRE(mkfifo(test_path("pipe"), 0600) == 0);
    CHECK_FAILS(sl_file_write_atomic(test_path("pipe"), "x", 1), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "no regular file; use another path");
    CHECK(lstat(test_path("pipe"), &there) == 0 && S_ISFIFO(there.st_mode));
}

/* Opening a FIFO without a writer would wait for ever: the alarm ends the test instead. */
TEST(only_regular_files_are_read)
{
    static const struct {
        const char *path, *part;
    } cases[] = {
        {"fifo", "named pipe (FIFO), not a regular file"}, {"/dev/zero", "a device"}, {"dir", "it is a folder"}};
    REQUIRE(mkfifo(test_path("fifo"), 0600) == 0);
    CHECK_OK(sl_dir_create(test_path("dir")));
    alarm(20);
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        char path[300], *text;
        size_t length;
        sl_reader *reader;
        snprintf(path, sizeof path, "%s", cases[i].path[0] == '/' ? cases[i].path : test_path(cases[i].path));
        CHECK_FAILS(sl_file_read_all(path, 100, &text, &length), SL_E_IO);
        CHECK_CONTAINS(sl_error_message(), cases[i].part);
        CHECK_CONTAINS(sl_error_message(), path);
        CHECK_FAILS(sl_reader_open(path, &reader), SL_E_IO);
        CHECK_CONTAINS(sl_error_message(), cases[i].part);
    }
    alarm(0);
}

TEST(folders)
{
    char deep[700], other[700];
    snprintf(deep, sizeof deep, "%s/one/two//three/", test_dir());
    snprintf(other, sizeof other, "%s/moved", test_dir());
    CHECK_OK(sl_dir_create(deep));
    CHECK_OK(sl_dir_create(deep));
    CHECK(sl_dir_exists(deep));
    put(test_path("one/two/three/b"), "1");
    put(test_path("one/two/three/a"), "2");
    put(test_path("one/two/three/C"), "3");
    put(test_path("outside"), "kept");
    REQUIRE(symlink(test_path("outside"), test_path("one/link")) == 0);
    sl_region *region;
    const char **names;
    int64_t count;
    CHECK_OK(sl_region_create(&region));
    CHECK_OK(sl_dir_list(region, deep, &names, &count));
    REQUIRE(count == 3);
    CHECK_STR(names[0], "C");
    CHECK_STR(names[1], "a");
    CHECK_STR(names[2], "b");
    CHECK_FAILS(sl_dir_list(region, test_path("absent"), &names, &count), SL_E_IO);
    for (int i = 0; i < 300; i++) {
        char name[64];
        snprintf(name, sizeof name, "many/%03d", i * 7 % 300);
        CHECK_OK(sl_dir_create(test_path(name)));
    }
    CHECK_OK(sl_dir_list(region, test_path("many"), &names, &count));
    REQUIRE(count == 300);
    for (int i = 0; i < 300; i++)
        CHECK_I64(strtol(names[i], NULL, 10), i);
    sl_region_destroy(region);
    CHECK_FAILS(sl_dir_create(test_path("outside/x")), SL_E_IO);
    CHECK_FAILS(sl_dir_create(test_path("outside")), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "a file of that name exists");
    CHECK_OK(sl_rename_durable(test_path("one"), other));
    CHECK(!sl_dir_exists(test_path("one")) && holds(test_path("moved/two/three/a"), "2"));
    CHECK_OK(sl_dir_create(test_path("full-folder/x")));
    CHECK_FAILS(sl_rename_durable(other, test_path("full-folder")), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "not empty");
    CHECK_OK(sl_dir_remove(other));
    CHECK(!sl_dir_exists(other) && holds(test_path("outside"), "kept"));
    CHECK_OK(sl_dir_remove(other)); /* it is gone, and that is what was asked for */
    static const char *const never[] = {"", "/", "//", ".", "..", "./", "/..", "x/..", "x/."};
    for (int64_t i = 0; i < SL_COUNT(never); i++)
        CHECK_FAILS(sl_dir_remove(never[i]), SL_E_IO);
    CHECK_FAILS(sl_dir_remove("/proc/self/fdinfo"), SL_E_IO); /* what nobody can remove is not said to be gone */
}

static int lowest_free_descriptor(void)
{
    int fd = dup(STDOUT_FILENO);
    close(fd);
    return fd;
}

/* The folder that holds the name, whether or not the name is there and with any number of slashes behind it. */
TEST(the_parent_is_synced)
{
    char path[512];
    int before = lowest_free_descriptor();
    CHECK_OK(sl_dir_create(test_path("parent")));
    CHECK_OK(sl_io_sync_parent(test_path("parent/absent")));
    snprintf(path, sizeof path, "%s///", test_path("parent/absent"));
    CHECK_OK(sl_io_sync_parent(path));
    CHECK_OK(sl_io_sync_parent("in-this-folder"));
    CHECK_FAILS(sl_io_sync_parent(test_path("parent/absent/deeper")), SL_E_IO);
    CHECK_CONTAINS(sl_error_message(), "cannot sync the folder");
    CHECK_I64(lowest_free_descriptor(), before);
}

/* Every error that has a way out names it. */
TEST(errors_say_what_to_do)
{
    static const struct {
        int error;
        size_t more;
        const char *message;
    } cases[] = {
        {ENOSPC, 7, "cannot do x: no space left on device (needs 7 more bytes); free some space or use another --out"},
        {EDQUOT, 0, "cannot do x: no space left on device; free some space or use another --out"},
        {EFBIG, 0, "cannot do x: larger than the largest file allowed here; raise ulimit -f"},
        {EACCES, 0, "cannot do x: no permission; check its owner and mode, or use another path"},
        {EPERM, 0, "cannot do x: no permission; check its owner and mode, or use another path"},
        {EROFS, 0, "cannot do x: the file system is read-only; use another path"},
        {ENOENT, 0, "cannot do x: no such file or folder; check the path"},
        {ENOTDIR, 0, "cannot do x: a part of the path is a file, not a folder"},
        {EISDIR, 0, "cannot do x: it is a folder, not a file"},
        {EMFILE, 0, "cannot do x: too many open files; raise ulimit -n"},
        {ENFILE, 0, "cannot do x: too many open files; raise ulimit -n"},
        {EIO, 0, "cannot do x: the disk reports an error; check it, or use another path"},
        {EBUSY, 0, "cannot do x: Device or resource busy"}};
    for (int64_t i = 0; i < SL_COUNT(cases); i++) {
        CHECK_FAILS(sl_io_failed("do", "x", cases[i].error, cases[i].more), SL_E_IO);
        CHECK_STR(sl_error_message(), cases[i].message);
    }
}

TEST(events_are_whole_lines)
{
    const char *path = test_path("events.jsonl");
    sl_events *events;
    put(path, "{\"event\":\"old\"}\n{\"event\":\"half");
    CHECK_OK(sl_events_open(path, &events));
    CHECK(holds(path, "{\"event\":\"old\"}\n"));
    uint64_t calls = sl_heap_calls();
    sl_json_put_i64(sl_events_begin(events, "step"), "n", 1);
    CHECK_OK(sl_events_end(events));
    CHECK_U64(sl_heap_calls(), calls);
    sl_fault_arm(SL_FAULT_WRITE, 1);
    sl_events_begin(events, "lost");
    CHECK_FAILS(sl_events_end(events), SL_E_IO);
    sl_fault_arm(SL_FAULT_WRITE, 0);
    sl_json_writer *w = sl_events_begin(events, "step");
    sl_json_begin_array(w, "list");
    sl_json_put_f64(w, NULL, 0.5);
    sl_json_end_array(w);
    CHECK_OK(sl_events_end(events));
    sl_events_close(events);
    char *text, *line;
    size_t length;
    int lines = 0;
    CHECK_OK(sl_file_read_all(path, 1 << 16, &text, &length));
    sl_region *region;
    CHECK_OK(sl_region_create(&region));
    for (line = text; *line; lines++) {
        const sl_json *root;
        size_t size = strcspn(line, "\n");
        CHECK_OK(sl_json_parse(region, "line", line, size, &root));
        CHECK_STR(sl_json_get(root, "event")->string, lines ? "step" : "old");
        line += size + 1;
    }
    CHECK_I64(lines, 3);
    sl_region_destroy(region);
    sl_free(text);
    /* Without a log everything is swallowed. */
    calls = sl_heap_calls();
    for (int i = 0; i < 3; i++) {
        w = sl_events_begin(NULL, "x");
        sl_json_begin_object(w, "o");
        sl_json_put_string(w, "k", "v");
        sl_json_end_object(w);
        CHECK_OK(sl_events_end(NULL));
    }
    CHECK_U64(sl_heap_calls(), calls);
    sl_events_close(NULL);
}

TEST(a_long_half_line_is_cut)
{
    const char *path = test_path("long.jsonl");
    char *text;
    CHECK_OK(sl_alloc(&text, 30001, 1));
    memset(text, 'x', 30000);
    for (int newline = 0; newline < 2; newline++) {
        sl_events *events;
        int64_t size;
        if (newline)
            text[9999] = '\n';
        put(path, text);
        CHECK_OK(sl_events_open(path, &events));
        sl_events_close(events);
        CHECK_OK(sl_file_size(path, &size));
        CHECK_I64(size, newline ? 10000 : 0);
    }
    sl_free(text);
}

/* The next file gets the same number as the one before. */
TEST(closed_readers_are_closed)
{
    sl_reader *reader;
    CHECK_OK(sl_file_write_atomic(test_path("closed"), "text", 4));
    int before = open("/dev/null", O_RDONLY);
    close(before);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(sl_reader_open(test_path("closed"), &reader));
        sl_reader_close(reader);
    }
    int after = open("/dev/null", O_RDONLY);
    close(after);
    CHECK_I64(after, before);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(read_all);
    RUN(reader_checks_every_range);
    RUN(writer_writes_what_it_was_given);
    RUN(atomic_under_every_fault);
    RUN(a_failed_writer_stays_failed);
    RUN(a_really_full_disk);
    RUN(links_and_devices);
    RUN(only_regular_files_are_read);
    RUN(folders);
    RUN(the_parent_is_synced);
    RUN(errors_say_what_to_do);
    RUN(events_are_whole_lines);
    RUN(a_long_half_line_is_cut);
    CHECK_I64(sl_heap_bytes(), 0);
    RUN(closed_readers_are_closed);
    return test_end();
}
