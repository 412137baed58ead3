/* Any bytes as a model's config.json: a model whose graph can be built, written and read back the same, or one sentence. */
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/internal.h"

const char *const sl_fuzz_dictionary[] = {"\"model_type\":\"llama\"",
                                          "\"model_type\":\"gpt2\"",
                                          "\"model_type\":\"qwen3\"",
                                          "\"model_type\":\"mistral\"",
                                          "\"model_type\":\"qwen2\"",
                                          "\"model_type\":\"smollm3\"",
                                          "\"model_type\":\"phi3\"",
                                          "\"model_type\":\"olmo2\"",
                                          "\"model_type\":\"gemma2\"",
                                          "\"model_type\":\"gemma3_text\"",
                                          "\"model_type\":\"gemma3\",\"text_config\":{",
                                          "\"query_pre_attn_scalar\":3.5",
                                          "\"final_logit_softcapping\":2",
                                          "\"sliding_window_pattern\":2",
                                          "\"rope_local_base_freq\":20",
                                          "\"rope_type\":\"yarn\"",
                                          "\"rope_type\":\"longrope\"",
                                          "\"rope_type\":\"dynamic\"",
                                          "\"short_factor\":[1,2]",
                                          "\"long_factor\":[1,2]",
                                          "\"partial_rotary_factor\":0.5",
                                          "\"no_rope_layers\":[0,1]",
                                          "\"layer_types\":[\"sliding_attention\",\"full_attention\"]",
                                          "\"use_sliding_window\":true",
                                          "\"hidden_size\":",
                                          "\"num_hidden_layers\":",
                                          "\"num_attention_heads\":",
                                          "\"num_key_value_heads\":",
                                          "\"head_dim\":",
                                          "\"vocab_size\":",
                                          "\"rope_scaling\":{\"rope_type\":\"llama3\"}",
                                          "\"rope_parameters\":{",
                                          "\"rope_theta\":",
                                          "\"n_embd\":",
                                          "\"n_head\":",
                                          "\"n_layer\":",
                                          "\"n_positions\":",
                                          "\"resid_pdrop\":",
                                          "\"attn_pdrop\":0",
                                          "\"eos_token_id\":[1,2]",
                                          "\"sliding_window\":null",
                                          "\"sluice_rope_order\":\"interleaved\"",
                                          "\"_private\":{}",
                                          "\"tie_word_embeddings\":true",
                                          "9223372036854775807",
                                          "16777216",
                                          "1e308",
                                          "-1",
                                          "null",
                                          NULL};

static void build_graph(const sl_model *model)
{
    sl_graph *graph;
    sl_graph_config config = {.tokens = 3, .max_segments = 1, .dtype = SL_BF16, .training = true};
    FUZZ_REQUIRE(sl_graph_create(&config, &graph) == SL_OK);
    FUZZ_REQUIRE(sl_model_build(model, graph) == SL_OK);
    int64_t count = 0;
    for (int32_t p = 0; p < graph->n_params; p++)
        count += sl_type_count(&graph->params[p].type);
    FUZZ_REQUIRE(count == sl_model_parameters(model));
    sl_graph_destroy(graph);
}

int sl_fuzz_one(const uint8_t *data, size_t size)
{
    sl_model model, back;
    sl_text text;
    if (sl_model_parse_config("config.json", (const char *) data, size, &model) != SL_OK) {
        FUZZ_REQUIRE(sl_error_message()[0]);
        return (int) strlen(sl_error_message()) % 64;
    }
    if (model.layers <= 4)
        build_graph(&model);
    FUZZ_REQUIRE(sl_model_config_text(&model, &text) == SL_OK);
    FUZZ_REQUIRE(sl_model_parse_config("again", text.data, text.length, &back) == SL_OK);
    FUZZ_REQUIRE(back.dim == model.dim && back.norm_eps == model.norm_eps && back.rope.theta == model.rope.theta &&
                 back.rope.factor == model.rope.factor && back.dropout == model.dropout &&
                 back.rope.scaling == model.rope.scaling && back.rope.rotary == model.rope.rotary &&
                 back.rope.magnitude == model.rope.magnitude && back.window == model.window &&
                 memcmp(back.layer_flags, model.layer_flags, sizeof back.layer_flags) == 0 &&
                 back.rope_style == model.rope_style && back.init_std == model.init_std &&
                 sl_model_parameters(&back) == sl_model_parameters(&model) && strcmp(back.kept, model.kept) == 0);
    sl_text_free(&text);
    return 100;
}
