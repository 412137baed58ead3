/*
 * config.json of multimodal models: the language model is an object "text_config" inside, and "language_model." stands in front of its
 * tensors' names (param_io.c). Sluice trains this model alone. What it writes is a folder of the language model, without the image
 * encoder.
 */
#include <string.h>

#include "model/internal.h"

static const struct {
    const char *model_type, *text_type;
    const char *keys[16]; /* end with NULL */
} wrappers[] = {
    {"gemma3",
     "gemma3_text",
     {"architectures", "model_type", "text_config", "vision_config", "mm_tokens_per_image", "boi_token_index",
      "eoi_token_index", "image_token_index", "initializer_range", "tie_word_embeddings"}},
};

/* Said twice, it must be the same: the language model alone goes by its own. */
static sl_status check_tied(const char *file, const sl_json *root, const sl_json *text)
{
    bool outside, inside;
    SL_TRY(sl_json_bool_or(file, root, "tie_word_embeddings", true, &outside));
    SL_TRY(sl_json_bool_or(file, text, "tie_word_embeddings", outside, &inside));
    if (outside != inside)
        return sl_fail(SL_E_FORMAT, "%s: \"tie_word_embeddings\" is %s, but %s in \"text_config\"; correct one", file,
                       outside ? "true" : "false", inside ? "true" : "false");
    if (!outside && !sl_json_get(text, "tie_word_embeddings"))
        return sl_fail(SL_E_FORMAT, "%s: \"tie_word_embeddings\" is false; say so in \"text_config\", too", file);
    return SL_OK;
}

sl_status sl_config_enter_text(const char *file, const sl_json **root, const char **model_type)
{
    SL_TRY(sl_json_string_or(file, *root, "model_type", "", model_type));
    for (int64_t i = 0; i < SL_COUNT(wrappers); i++) {
        if (strcmp(wrappers[i].model_type, *model_type) != 0)
            continue;
        const sl_json *text = sl_json_get(*root, "text_config");
        SL_TRY(sl_config_check_keys(file, *root, wrappers[i].keys, NULL));
        if (!text || text->kind != SL_JSON_OBJECT)
            return sl_fail(SL_E_FORMAT, "%s: \"text_config\", the language model of \"%s\", is not an object", file,
                           *model_type);
        SL_TRY(sl_config_must_be_string(file, text, "model_type", wrappers[i].text_type));
        SL_TRY(check_tied(file, *root, text));
        *model_type = wrappers[i].text_type;
        *root = text;
        break;
    }
    return SL_OK;
}
