/* Any bytes as a tar shard: members that lie within the file, or one sentence; and as a set of images. */
#include <string.h>

#include "data/image/set_internal.h"
#include "fuzz/fuzz.h"

const char *const sl_fuzz_dictionary[] = {"ustar",         "path=",       "size=", "12 path=abc\n", ".cls", ".jpg",
                                          "././@LongLink", "00000000144", NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    const char *path = sl_fuzz_file(data, size);
    sl_tar *tar;
    sl_tar_member member;
    bool more = true;
    int outcome = 0;
    int64_t last = -1;
    if (sl_tar_open(path, &tar) != SL_OK)
        return 1;
    while (more && outcome < 1000) {
        if (sl_tar_next(tar, &member, &more) != SL_OK) {
            FUZZ_REQUIRE(sl_error_message()[0]);
            outcome += 1000 + (int) (strlen(sl_error_message()) % 100);
            break;
        }
        if (!more)
            break;
        FUZZ_REQUIRE(member.begin > last && member.offset >= member.begin + 512 && member.bytes >= 0);
        FUZZ_REQUIRE(member.offset + member.bytes <= (int64_t) size && strlen(member.name) <= SL_TAR_NAME);
        last = member.begin;
        outcome++;
    }
    sl_tar_close(tar);
    sl_image_set *set;
    FUZZ_REQUIRE(sl_alloc(&set, 1, sizeof *set) == SL_OK && sl_region_create(&set->region) == SL_OK);
    if (sl_image_set_add_shard(set, path) == SL_OK) {
        sl_file_bytes file = {0};
        char name[128];
        for (int64_t i = 0; i < sl_image_set_count(set) && i < 4; i++) {
            if (sl_image_set_read(set, i, 1 << 20, &file) == SL_OK)
                FUZZ_REQUIRE(file.length <= size);
            FUZZ_REQUIRE(sl_image_set_label(set, i) >= 0 && sl_image_set_label(set, i) < sl_image_set_classes(set));
            sl_image_set_name(set, i, name, sizeof name);
            FUZZ_REQUIRE(strchr(name, ':'));
        }
        sl_file_bytes_free(&file);
        outcome += 2000;
    }
    sl_image_set_close(set);
    return outcome;
}
