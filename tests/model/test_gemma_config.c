/* config.json of published Gemma 2, Gemma 3 and OLMo2: numbers of parameters, layers, thetas and caps; defaults of absent keys; what is
 * refused. */
#include "model/internal.h"
#include "program/program.h"
#include "test.h"

static sl_status parse(const char *text, sl_model *model)
{
    return sl_model_parse_config("config.json", text, strlen(text), model);
}

#define SIZES(d, f, l, h, g, v)                                                          \
    "\"hidden_size\": " #d ", \"intermediate_size\": " #f ", \"num_hidden_layers\": " #l \
    ", \"num_attention_heads\": " #h ", \"num_key_value_heads\": " #g ", \"vocab_size\": " #v ", "

static const char gemma2[] = "{\"architectures\": [\"Gemma2ForCausalLM\"], \"model_type\": \"gemma2\", " SIZES(
    2304, 9216, 26, 8, 4,
    256000) "\"attention_bias\": false, \"attention_dropout\": 0.0, \"attn_logit_softcapping\": 50.0, "
            "\"bos_token_id\": 2, \"cache_implementation\": \"hybrid\", \"eos_token_id\": 1, "
            "\"final_logit_softcapping\": 30.0, \"head_dim\": 256, \"hidden_act\": \"gelu_pytorch_tanh\", "
            "\"hidden_activation\": \"gelu_pytorch_tanh\", \"initializer_range\": 0.02, "
            "\"max_position_embeddings\": 8192, \"pad_token_id\": 0, \"query_pre_attn_scalar\": 256, "
            "\"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"sliding_window\": 4096, "
            "\"torch_dtype\": \"float32\", \"transformers_version\": \"4.42.4\", \"use_cache\": true}";
static const char gemma3[] = "{\"architectures\": [\"Gemma3ForCausalLM\"], \"model_type\": \"gemma3_text\", " SIZES(
    1152, 6912, 26, 4, 1,
    262144) "\"attention_bias\": false, \"attention_dropout\": 0.0, \"attn_logit_softcapping\": null, "
            "\"bos_token_id\": 2, \"cache_implementation\": \"hybrid\", \"eos_token_id\": [1, 106], "
            "\"final_logit_softcapping\": null, \"head_dim\": 256, \"hidden_activation\": \"gelu_pytorch_tanh\", "
            "\"initializer_range\": 0.02, \"max_position_embeddings\": 32768, \"pad_token_id\": 0, "
            "\"query_pre_attn_scalar\": 256, \"rms_norm_eps\": 1e-06, \"rope_local_base_freq\": 10000, "
            "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": 512, "
            "\"sliding_window_pattern\": 6, \"torch_dtype\": \"bfloat16\", \"use_cache\": true}";
static const char olmo2[] = "{\"architectures\": [\"Olmo2ForCausalLM\"], \"model_type\": \"olmo2\", " SIZES(
    4096, 11008, 32, 32, 32,
    100352) "\"attention_bias\": false, \"attention_dropout\": 0.0, \"eos_token_id\": 100257, "
            "\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"max_position_embeddings\": 4096, "
            "\"pad_token_id\": 100277, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 500000, "
            "\"tie_word_embeddings\": false, \"torch_dtype\": \"float32\", \"use_cache\": true}";
/* All that has a default is left away. */
static const char least2[] = "{\"model_type\": \"gemma2\", " SIZES(32, 48, 3, 4, 2, 61) "\"use_cache\": true}";
static const char least3[] = "{\"model_type\": \"gemma3_text\", " SIZES(32, 48, 7, 4, 2, 61) "\"use_cache\": true}";

/* A text with one member replaced. */
static const char *with(const char *text, const char *member, const char *replacement)
{
    static char out[2][4096];
    static int turn;
    char *to = out[turn = !turn];
    const char *at = strstr(text, member);
    REQUIRE(at != NULL);
    snprintf(to, sizeof out[0], "%.*s%s%s", (int) (at - text), text, replacement, at + strlen(member));
    return to;
}

TEST(published)
{
    static const struct {
        const char *text;
        int64_t parameters;
    } models[] = {{gemma2, 2614341888}, {gemma3, 999885952}, {olmo2, 7298617344}};
    for (int64_t i = 0; i < SL_COUNT(models); i++) {
        sl_model model;
        CHECK_OK(parse(models[i].text, &model));
        CHECK_I64(sl_model_parameters(&model), models[i].parameters);
    }
}

TEST(layers)
{
    sl_model model;
    CHECK_OK(parse(gemma2, &model));
    CHECK(model.tied && model.query_scale == 256 && model.attention_cap == 50 && model.logit_cap == 30);
    for (int64_t i = 0; i < model.layers; i++)
        CHECK_I64(sl_model_window(&model, i), i % 2 ? 0 : 4096);
    CHECK_OK(parse(gemma3, &model));
    CHECK(model.tied && model.attention_cap == 0 && model.logit_cap == 0);
    for (int64_t i = 0; i < model.layers; i++) {
        CHECK_I64(sl_model_window(&model, i), i % 6 == 5 ? 0 : 512);
        CHECK(sl_model_rope_of(&model, i)->theta == (i % 6 == 5 ? 1e6f : 1e4f));
    }
    CHECK_OK(parse(with(gemma3, "\"sliding_window_pattern\": 6", "\"sliding_window_pattern\": 2"), &model));
    CHECK(sl_model_window(&model, 0) == 512 && sl_model_window(&model, 1) == 0);
    CHECK_OK(parse(with(gemma3, "\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8}"),
                   &model));
    CHECK(model.rope.factor == 8 && model.local_rope.factor == 0); /* layers that see everything alone */
    CHECK_OK(parse(olmo2, &model));
    CHECK(!model.tied && model.window == 0 && model.rope.theta == 5e5f);
}

TEST(absent_keys)
{
    sl_model model;
    CHECK_OK(parse(least2, &model));
    CHECK(model.tied && model.head_dim == 256 && model.query_scale == 256 && model.window == 4096);
    CHECK(model.attention_cap == 50 && model.logit_cap == 30 && model.rope.theta == 1e4f && model.norm_eps == 1e-6f);
    CHECK(sl_model_window(&model, 1) == 0 && sl_model_window(&model, 2) == 4096);
    CHECK_OK(parse(with(least2, "\"use_cache\": true",
                        "\"attn_logit_softcapping\": null, \"final_logit_softcapping\": null, \"layer_types\": "
                        "[\"full_attention\", \"full_attention\", \"full_attention\"]"),
                   &model));
    CHECK(model.attention_cap == 0 && model.logit_cap == 0 && model.window == 0);
    CHECK_OK(parse(least3, &model));
    CHECK(model.tied && model.attention_cap == 0 && model.logit_cap == 0 && model.rope.theta == 1e6f);
    CHECK(model.local_rope.theta == 1e4f && sl_model_window(&model, 4) == 4096 && sl_model_window(&model, 5) == 0);
}

/* The program's arithmetic counts what windows leave. */
TEST(step_flops)
{
    static const char *const texts[] = {least2, least3};
    for (int64_t i = 0; i < SL_COUNT(texts); i++) {
        sl_model model;
        sl_program *program;
        sl_program_config config = {.chunking = {256, 2, 512}, .precision = SL_PRECISION_BF16, .max_segments = 1};
        CHECK_OK(parse(with(texts[i], "\"use_cache\": true", "\"sliding_window\": 100, \"head_dim\": 8"), &model));
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
        CHECK(program->flops == sl_model_step_flops(&model, 256, 2));
        sl_program_destroy(program);
    }
}

/* Gemma 3 4B, as it is published: sizes that are transformers' defaults are left away. */
static const char wrapper[] =
    "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"boi_token_index\": 255999, \"eoi_token_index\": "
    "256000, "
    "\"eos_token_id\": [1, 106], \"image_token_index\": 262144, \"initializer_range\": 0.02, "
    "\"mm_tokens_per_image\": 256, \"model_type\": \"gemma3\", \"text_config\": {\"hidden_size\": 2560, "
    "\"intermediate_size\": 10240, \"model_type\": \"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": "
    "{\"factor\": 8.0, \"rope_type\": \"linear\"}, \"sliding_window\": 1024}, \"torch_dtype\": \"bfloat16\", "
    "\"transformers_version\": \"4.50.0.dev0\", \"vision_config\": {\"hidden_size\": 1152}}";

TEST(language_model_of_a_multimodal_one)
{
    sl_model model;
    sl_text text;
    CHECK_OK(parse(wrapper, &model));
    CHECK_I64(sl_model_parameters(&model), 3880263168);
    CHECK(model.heads == 8 && model.kv_heads == 4 && model.vocab == 262208 && model.rope.factor == 8);
    CHECK(sl_model_window(&model, 4) == 1024 && sl_model_window(&model, 5) == 0);
    CHECK_OK(sl_model_config_text(&model, &text));
    CHECK_CONTAINS(text.data, "\"model_type\": \"gemma3_text\"");
    sl_text_free(&text);
}

static void check_refused(const char *text, const char *message)
{
    sl_model model;
    CHECK(parse(text, &model) != SL_OK);
    CHECK_CONTAINS(sl_error_message(), message);
    CHECK_CONTAINS(sl_error_message(), "config.json");
}

TEST(refused)
{
    check_refused(with(gemma2, "\"sliding_window\": 4096", "\"sliding_window\": null"), "sliding_window");
    check_refused(with(gemma2, "\"hidden_activation\": \"gelu_pytorch_tanh\"", "\"hidden_activation\": \"gelu\""),
                  "hidden_activation");
    check_refused(with(gemma2, "\"hidden_act\": \"gelu_pytorch_tanh\"", "\"hidden_act\": \"silu\""), "hidden_act");
    check_refused(with(gemma2, "\"query_pre_attn_scalar\": 256", "\"query_pre_attn_scalar\": 0"),
                  "query_pre_attn_scalar");
    check_refused(with(gemma2, "\"final_logit_softcapping\": 30.0", "\"final_logit_softcapping\": -1"),
                  "final_logit_softcapping");
    check_refused(with(gemma2, "\"use_cache\": true", "\"rope_local_base_freq\": 1000"), "rope_local_base_freq");
    check_refused(with(gemma2, "\"use_cache\": true", "\"sliding_window_pattern\": 3"), "sliding_window_pattern");
    check_refused(with(gemma3, "\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0"),
                  "attn_logit_softcapping");
    check_refused(with(gemma3, "\"use_cache\": true", "\"use_bidirectional_attention\": true"),
                  "use_bidirectional_attention");
    check_refused(with(gemma3, "\"sliding_window_pattern\": 6", "\"sliding_window_pattern\": 0"),
                  "sliding_window_pattern");
    check_refused(with(with(gemma3, "\"rope_scaling\": null, \"rope_theta\": 1000000, ", ""),
                       "\"rope_local_base_freq\": 10000",
                       "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}, "
                       "\"sliding_attention\": {\"rope_type\": \"linear\", \"factor\": 2}}"),
                  "sliding_attention");
    check_refused(with(wrapper, "\"text_config\": {", "\"text_configs\": {"), "text_config");
    check_refused(with(wrapper, "\"torch_dtype\"", "\"tie_word_embeddings\": false, \"torch_dtype\""),
                  "tie_word_embeddings");
    check_refused(with(wrapper, "\"gemma3_text\"", "\"llama\""), "model_type");
    check_refused(with(olmo2, "\"rope_scaling\": null", "\"clip_qkv\": 8"), "clip_qkv");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(published);
    RUN(layers);
    RUN(absent_keys);
    RUN(step_flops);
    RUN(language_model_of_a_multimodal_one);
    RUN(refused);
    return test_end();
}
