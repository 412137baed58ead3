/* Any bytes as an adapter_config.json: adapters whose file is written and read back the same, or one sentence. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/lora.h"

const char *const sl_fuzz_dictionary[] = {"\"peft_type\":\"LORA\"",
                                          "\"r\":",
                                          "\"lora_alpha\":",
                                          "\"lora_dropout\":",
                                          "\"use_rslora\":true",
                                          "\"use_dora\":true",
                                          "\"bias\":\"none\"",
                                          "\"init_lora_weights\":\"pissa\"",
                                          "\"rank_pattern\":{}",
                                          "\"modules_to_save\":null",
                                          "\"target_modules\":\"all-linear\"",
                                          "\"target_modules\":[\"q_proj\",\"v_proj\"]",
                                          "\"model.layers.0.mlp.up_proj\"",
                                          "9223372036854775807",
                                          "1e308",
                                          "-1",
                                          "null",
                                          NULL};

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_lora lora, back;
    sl_text text;
    if (sl_lora_parse_config("adapter_config.json", (const char *) data, size, &lora) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return (int) strlen(sl_error_message()) % 64;
    }
    FUZZ_REQUIRE(lora.rank >= 1 && lora.rank <= SL_LORA_MOST_RANK && lora.targets[0]);
    FUZZ_REQUIRE(memchr(lora.targets, 0, sizeof lora.targets));
    if (strstr(lora.targets, SL_LORA_ALL)) /* needs a model to be written out */
        return 90;
    FUZZ_REQUIRE(sl_lora_config_text(&lora, NULL, 0, "base", &text) == SL_OK);
    FUZZ_REQUIRE(sl_lora_parse_config("again", text.data, text.length, &back) == SL_OK);
    FUZZ_REQUIRE(back.rank == lora.rank && back.alpha == lora.alpha && back.dropout == lora.dropout &&
                 back.rank_stabilized == lora.rank_stabilized && strcmp(back.targets, lora.targets) == 0);
    sl_text_free(&text);
    return 100;
}
