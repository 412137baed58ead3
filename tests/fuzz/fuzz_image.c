/* Any bytes as an image: pixels, or one sentence, in memory that the limit bounds; the whole and a scaled part of it. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "image/image.h"

const char *const sl_fuzz_dictionary[] = {
    "\xff\xd8\xff",      "\xff\xd9", "\xff\xda", "\xff\xc0", "\xff\xc2", "\xff\xc4", "\xff\xdd",
    "\x89PNG\r\n\x1a\n", "IHDR",     "PLTE",     "tRNS",     "IDAT",     "IEND",     NULL};

enum { LIMIT = 1 << 14 };

static void choose_middle(void *context, int64_t width, int64_t height, sl_image_part *part)
{
    (void) context;
    FUZZ_REQUIRE(width * height <= LIMIT);
    *part = (sl_image_part){width / 4, height / 3, (width + 1) / 2, (height + 1) / 2, 5, 4};
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    static sl_image image;
    int outcome = 0;
    for (int part = 0; part < 2; part++) {
        if (sl_image_decode(data, size, LIMIT, part ? choose_middle : NULL, NULL, &image) == SL_OK) {
            FUZZ_REQUIRE(image.width >= 1 && image.height >= 1 && image.part.left >= 0 && image.part.top >= 0);
            FUZZ_REQUIRE(image.part.right <= (double) image.width && image.part.bottom <= (double) image.height);
            FUZZ_REQUIRE(image.capacity >= (size_t) (image.width * image.height) * SL_PIXEL_BYTES);
            outcome += 1000 + (int) (image.width % 16);
        } else {
            FUZZ_REQUIRE(sl_error_message()[0]);
            outcome += (int) (strlen(sl_error_message()) % 100) + part * 100;
        }
    }
    return outcome;
}
