/* Any bytes as a checkpoint's state.json: read or refused in one sentence, whatever they claim. The text's own checksum would
 * stop every mutant at the door, so where a mutant still has one it is set right first. */
#include <inttypes.h>
#include <string.h>

#include "core/hash.h"
#include "fuzz/fuzz.h"
#include "train/checkpoint.h"

const char *const sl_fuzz_dictionary[] = {"\"format\":\"sluice checkpoint\"",
                                          "\"version\":1",
                                          "\"step\":",
                                          "\"position\":",
                                          "\"updates\":",
                                          "\"files\":{",
                                          "\"model.safetensors\":{",
                                          "\"bytes\":",
                                          "\"hash\":\"0123456789abcdef\"",
                                          "\"run\":{",
                                          ",\"checksum\":\"",
                                          "9223372036854775807",
                                          NULL};

static void set_checksum(char *text, size_t size)
{
    static const char key[] = ",\"checksum\":\"";
    char *last = NULL, *at = text, digits[17];
    while ((at = memmem(at, size - (size_t) (at - text), key, sizeof key - 1)) != NULL)
        last = at++;
    if (!last || (size_t) (last - text) + sizeof key - 1 + 16 > size)
        return;
    snprintf(digits, sizeof digits, "%016" PRIx64, sl_hash64(text, (size_t) (last - text), 0));
    memcpy(last + sizeof key - 1, digits, 16);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    static char text[1 << 16];
    sl_checkpoint_state *state;
    if (size > sizeof text)
        return 0;
    memcpy(text, data, size);
    set_checksum(text, size);
    if (sl_checkpoint_state_read(sl_fuzz_file((const uint8_t *) text, size), &state) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 1 + (int) (strlen(sl_error_message()) % 200);
    }
    sl_checkpoint_state_destroy(state);
    return 0;
}
