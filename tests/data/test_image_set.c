/* Image sets: class folders and tar shards as tar programs write them, in one order everywhere, and what is refused. */
#include "core/file.h"
#include "core/mem.h"
#include "data/image/image_set.h"
#include "data/image/tar.h"
#include "test.h"

static void write_file(const char *name, const char *content)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", test_dir(), name);
    *strrchr(path, '/') = 0;
    CHECK_OK(sl_dir_create(path));
    CHECK_OK(sl_file_write_atomic(test_path(name), content, strlen(content)));
}

static void check_sample(const sl_image_set *set, int64_t index, const char *content, int32_t label, const char *name)
{
    sl_file_bytes file = {0};
    char got[512];
    CHECK_OK(sl_image_set_read(set, index, 1 << 20, &file));
    CHECK_MSG(file.length == strlen(content) && memcmp(file.bytes, content, file.length) == 0,
              "image %lld holds \"%.*s\"", (long long) index, (int) file.length, (const char *) file.bytes);
    CHECK_FAILS(sl_image_set_read(set, index, (int64_t) strlen(content) - 1, &file), SL_E_FORMAT);
    CHECK_I64(sl_image_set_label(set, index), label);
    sl_image_set_name(set, index, got, sizeof got);
    CHECK_CONTAINS(got, name);
    sl_file_bytes_free(&file);
}

TEST(class_folders)
{
    sl_image_set *set, *validation;
    write_file("folders/dog/b.JPEG", "dog b");
    write_file("folders/dog/a.png", "dog a");
    write_file("folders/dog/notes.txt", "no image");
    write_file("folders/cat/deep/er/c.jpg", "cat c");
    write_file("folders/cat/.hidden.jpg", "no image");
    write_file("folders/readme.jpg", "no class");
    CHECK_OK(sl_image_set_open(test_path("folders"), NULL, &set));
    CHECK_I64(sl_image_set_count(set), 3);
    CHECK_I64(sl_image_set_classes(set), 2);
    CHECK_STR(sl_image_set_class_name(set, 0), "cat");
    CHECK_STR(sl_image_set_class_name(set, 1), "dog");
    check_sample(set, 0, "cat c", 0, "folders/cat/deep/er/c.jpg");
    check_sample(set, 1, "dog a", 1, "folders/dog/a.png");
    check_sample(set, 2, "dog b", 1, "folders/dog/b.JPEG");
    /* Validation data has the training data's numbers, though a class is missing. */
    write_file("val/dog/v.jpg", "dog v");
    CHECK_OK(sl_image_set_open(test_path("val"), set, &validation));
    CHECK_I64(sl_image_set_classes(validation), 2);
    check_sample(validation, 0, "dog v", 1, "val/dog/v.jpg");
    CHECK(sl_image_set_identity(validation) != sl_image_set_identity(set));
    sl_image_set_close(validation);
    write_file("val/bird/v.jpg", "bird");
    CHECK_FAILS(sl_image_set_open(test_path("val"), set, &validation), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "bird is a class that the training data lacks");
    /* The same files elsewhere are the same data; a renamed class is not. */
    uint64_t identity = sl_image_set_identity(set);
    sl_image_set_close(set);
    CHECK(rename(test_path("folders"), test_path("moved")) == 0);
    CHECK_OK(sl_image_set_open(test_path("moved"), NULL, &set));
    CHECK_U64(sl_image_set_identity(set), identity);
    sl_image_set_close(set);
    CHECK(rename(test_path("moved/cat"), test_path("moved/ant")) == 0);
    CHECK_OK(sl_image_set_open(test_path("moved"), NULL, &set));
    CHECK(sl_image_set_identity(set) != identity);
    sl_image_set_close(set);
    write_file("moved/empty/x.txt", "");
    CHECK_FAILS(sl_image_set_open(test_path("moved"), NULL, &set), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "empty holds no .jpg");
}

/* A header of a tar file, and its data; `size` may lie. */
typedef struct tar_bytes {
    unsigned char bytes[1 << 16];
    size_t length;
} tar_bytes;

static void add_header(tar_bytes *tar, const char *name, char type, size_t size)
{
    unsigned char *header = tar->bytes + tar->length;
    unsigned sum = 0;
    memset(header, 0, 512);
    snprintf((char *) header, 100, "%s", name);
    memcpy(header + 100, "0000644", 8);
    snprintf((char *) header + 124, 12, "%011zo", size);
    memset(header + 148, ' ', 8);
    header[156] = (unsigned char) type;
    memcpy(header + 257, "ustar\00000", 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *) header + 148, 8, "%06o", sum);
    tar->length += 512;
}

static void add_member(tar_bytes *tar, const char *name, char type, const char *content)
{
    size_t size = strlen(content);
    add_header(tar, name, type, size);
    memset(tar->bytes + tar->length, 0, SL_ROUND_UP(size, 512));
    memcpy(tar->bytes + tar->length, content, size);
    tar->length += SL_ROUND_UP(size, 512);
}

/* Of the member whose data end at the end of `tar`, `back` bytes behind its header. */
static void set_binary_size(tar_bytes *tar, size_t back, unsigned char size)
{
    unsigned char *header = tar->bytes + tar->length - back;
    unsigned sum = 0;
    memset(header + 124, 0, 12);
    header[124] = 0x80;
    header[135] = size;
    memset(header + 148, ' ', 8);
    for (int i = 0; i < 512; i++)
        sum += header[i];
    snprintf((char *) header + 148, 8, "%06o", sum);
}

static sl_status open_tar(const tar_bytes *tar, sl_image_set **set)
{
    CHECK_OK(sl_file_write_atomic(test_path("one.tar"), tar->bytes, tar->length));
    return sl_image_set_open(test_path("one.tar"), NULL, set);
}

TEST(tar_shards)
{
    static tar_bytes tar;
    sl_image_set *set;
    char long_name[200];
    memset(long_name, 'n', sizeof long_name);
    snprintf(long_name + 190, 10, ".jpg");
    add_member(&tar, "shard/", '5', "");
    add_member(&tar, "shard/0001.jpg", '0', "first");
    add_member(&tar, "shard/0001.cls", '0', "7\n");
    add_member(&tar, "shard/0001.seg.png", '0', "another kind");
    add_member(&tar, "shard/0002.cls", '0', "0"); /* the label may come first */
    add_member(&tar, "shard/0002.PNG", '0', "second");
    add_member(&tar, "././@LongLink", 'L', long_name);
    add_member(&tar, "cut", '0', "third");
    snprintf(long_name + 190, 10, ".cls");
    char pax[256];
    snprintf(pax, sizeof pax, "%zu path=%s\n", strlen(long_name) + 10, long_name);
    add_member(&tar, "pax", 'x', pax);
    add_member(&tar, "cut", '0', "3");
    for (int zeros = 0; zeros < 2; zeros++) { /* with and without an end mark */
        CHECK_OK(open_tar(&tar, &set));
        CHECK_I64(sl_image_set_count(set), 3);
        CHECK_I64(sl_image_set_classes(set), 8);
        check_sample(set, 0, "first", 7, "one.tar:shard/0001.jpg");
        check_sample(set, 1, "second", 0, "one.tar:shard/0002.PNG");
        check_sample(set, 2, "third", 3, "nnnn.jpg");
        sl_image_set_close(set);
        memset(tar.bytes + tar.length, 0, 1024);
        tar.length += 1024;
    }
    /* Sizes that octal digits do not hold: in base 256, and in a pax record, whose word counts. */
    tar.length = 0;
    add_member(&tar, "big.jpg", '0', "fourth");
    set_binary_size(&tar, 1024, 6);
    add_member(&tar, "pax", 'x', "10 size=1\n");
    add_header(&tar, "big.cls", '0', 0);
    memset(tar.bytes + tar.length, 0, 512);
    tar.bytes[tar.length] = '4';
    tar.length += 512;
    CHECK_OK(open_tar(&tar, &set));
    CHECK_I64(sl_image_set_count(set), 1);
    check_sample(set, 0, "fourth", 4, "big.jpg");
    sl_image_set_close(set);
    /* A folder of shards, in the order of their names; and several, separated by commas. */
    char list[1024];
    CHECK_OK(sl_dir_create(test_path("shards")));
    for (int i = 2; i >= 0; i--) {
        char name[32], key[32], content[32];
        tar.length = 0;
        snprintf(key, sizeof key, "%d.jpg", i);
        snprintf(content, sizeof content, "image %d", i);
        add_member(&tar, key, '0', content);
        snprintf(key, sizeof key, "%d.cls", i);
        add_member(&tar, key, '0', "1");
        snprintf(name, sizeof name, "shards/%d.tar", i);
        CHECK_OK(sl_file_write_atomic(test_path(name), tar.bytes, tar.length));
    }
    CHECK_OK(sl_image_set_open(test_path("shards"), NULL, &set));
    CHECK_I64(sl_image_set_count(set), 3);
    for (int i = 0; i < 3; i++) {
        char content[32], name[32];
        snprintf(content, sizeof content, "image %d", i);
        snprintf(name, sizeof name, "%d.tar:%d.jpg", i, i);
        check_sample(set, i, content, 1, name);
    }
    sl_image_set_close(set);
    snprintf(list, sizeof list, "%s,%s", test_path("shards/2.tar"), test_path("shards/0.tar"));
    CHECK_OK(sl_image_set_open(list, NULL, &set));
    CHECK_I64(sl_image_set_count(set), 2);
    check_sample(set, 0, "image 2", 1, "2.jpg");
    sl_image_set_close(set);
}

static void check_refused(const tar_bytes *tar, const char *why)
{
    sl_image_set *set;
    CHECK_FAILS(open_tar(tar, &set), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), why);
}

TEST(refuses_damaged_shards)
{
    static tar_bytes tar;
    sl_image_set *set;
    add_member(&tar, "1.jpg", '0', "x");
    check_refused(&tar, "sample 1 has no class");
    add_member(&tar, "1.cls", '0', "x");
    check_refused(&tar, "1.cls holds no class number");
    tar.length -= 1024;
    add_member(&tar, "1.cls", '0', "1048576");
    check_refused(&tar, "below 1048576");
    tar.length -= 1024;
    add_member(&tar, "1.png", '0', "1");
    check_refused(&tar, "two images");
    tar.length -= 1024;
    add_member(&tar, "1.cls", '0', "1");
    add_member(&tar, "2.cls", '0', "1");
    check_refused(&tar, "sample 2 has no .jpg");
    tar.length -= 1024;
    add_header(&tar, "2.jpg", '0', 4000);
    check_refused(&tar, "longer than the file");
    tar.length -= 512;
    add_header(&tar, "pax", 'x', 512);
    memset(tar.bytes + tar.length, 'x', 512);
    tar.length += 512;
    check_refused(&tar, "pax record");
    tar.length -= 1024;
    tar.bytes[1024 + 3] ^= 1;
    check_refused(&tar, "checksum");
    tar.bytes[1024 + 3] ^= 1;
    tar.length -= 100;
    CHECK_OK(open_tar(&tar, &set)); /* only padding is missing */
    sl_image_set_close(set);
    tar.length -= 512;
    check_refused(&tar, "");
    CHECK_FAILS(sl_image_set_open(test_path("nowhere"), NULL, &set), SL_E_USAGE);
    CHECK_OK(sl_dir_create(test_path("nothing")));
    CHECK_FAILS(sl_image_set_open(test_path("nothing"), NULL, &set), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "holds no images");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(class_folders);
    RUN(tar_shards);
    RUN(refuses_damaged_shards);
    return test_end();
}
