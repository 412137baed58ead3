/* Any bytes as a checkpoint's state.json: read or refused in one sentence, whatever they claim. */
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
                                          "\"hash\":\"",
                                          "\"run\":{",
                                          ",\"checksum\":\"",
                                          NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_checkpoint_state *state;
    if (sl_checkpoint_state_read(sl_fuzz_file(data, size), &state) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return 0;
    }
    sl_checkpoint_state_destroy(state);
    return 0;
}
