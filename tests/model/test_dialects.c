/* config.json of published models of Llama's kind and their numbers of parameters; both dialects of transformers; keys that contradict each
 * other or that a family does not compute with. */
#include "model/internal.h"
#include "program/program.h"
#include "test.h"

static sl_status parse(const char *text, sl_model *model)
{
    return sl_model_parse_config("config.json", text, strlen(text), model);
}

#define SIZES(d, f, l, h, g, v)                                                                                \
    "\"hidden_size\": " #d ", \"intermediate_size\": " #f ", \"num_hidden_layers\": " #l                       \
    ", \"num_attention_heads\": " #h ", \"num_key_value_heads\": " #g ", \"vocab_size\": " #v ", "             \
    "\"hidden_act\": \"silu\", \"initializer_range\": 0.02, \"attention_dropout\": 0.0, \"use_cache\": true, " \
    "\"bos_token_id\": 1, \"eos_token_id\": 2, \"torch_dtype\": \"bfloat16\", "

static const char mistral[] = "{\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\", " SIZES(
    4096, 14336, 32, 32, 8, 32000) "\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05, \"rope_theta\": "
                                   "10000.0, \"sliding_window\": 4096, "
                                   "\"tie_word_embeddings\": false, \"transformers_version\": \"4.34.0.dev0\"}";
static const char qwen25[] = "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", " SIZES(
    896, 4864, 24, 14, 2, 151936) "\"max_position_embeddings\": 32768, \"max_window_layers\": 21, \"rms_norm_eps\": "
                                  "1e-06, \"rope_theta\": 1000000.0, "
                                  "\"sliding_window\": 32768, \"tie_word_embeddings\": true, \"use_mrope\": false, "
                                  "\"use_sliding_window\": false}";
static const char smollm3[] = "{\"architectures\": [\"SmolLM3ForCausalLM\"], \"model_type\": \"smollm3\", " SIZES(
    2048, 11008, 36, 16, 4,
    128256) "\"attention_bias\": false, \"mlp_bias\": false, \"max_position_embeddings\": 65536, "
            "\"max_window_layers\": 28, "
            "\"no_rope_layer_interval\": 4, \"pretraining_tp\": 2, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, "
            "\"rope_theta\": 5000000.0, \"sliding_window\": null, \"use_sliding_window\": false}";
static const char phi3[] = "{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", " SIZES(
    3072, 8192, 32, 32, 32,
    32064) "\"auto_map\": {\"AutoConfig\": \"configuration_phi3.Phi3Config\", "
           "\"AutoModelForCausalLM\": \"modeling_phi3.Phi3ForCausalLM\"}, \"embd_pdrop\": 0.0, \"resid_pdrop\": 0.0, "
           "\"max_position_embeddings\": 4096, \"original_max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, "
           "\"rope_scaling\": null, \"rope_theta\": 10000.0, \"sliding_window\": 2047, \"tie_word_embeddings\": false}";
/* Two pairs of a head of 8, of which half is rotated. */
static const char phi4[] = "{\"model_type\": \"phi3\", " SIZES(
    32, 48, 2, 4, 2,
    61) "\"full_attn_mod\": 1, \"interpolate_factor\": 1, \"lm_head_bias\": false, \"attention_bias\": false, "
        "\"mlp_bias\": false, \"partial_rotary_factor\": 0.5, \"max_position_embeddings\": 131072, "
        "\"original_max_position_embeddings\": 4096, \"rope_theta\": 10000.0, \"tie_word_embeddings\": true, "
        "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1.5], \"long_factor\": [1.2, 30]}}";

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
    } models[] = {{mistral, 7241732096}, {qwen25, 494032768}, {smollm3, 3075098624}, {phi3, 3821079552}};
    for (int64_t i = 0; i < SL_COUNT(models); i++) {
        sl_model model;
        CHECK_OK(parse(models[i].text, &model));
        CHECK_I64(sl_model_parameters(&model), models[i].parameters);
    }
}

/* Phi-4-mini with every factor 1: its lists are long. llama.cpp's converter looks for the original context in every Phi-3. */
TEST(phi4_mini)
{
    char text[2048], ones[256] = "1";
    sl_model model;
    sl_text written;
    for (int i = 1; i < 48; i++)
        snprintf(ones + strlen(ones), sizeof ones - strlen(ones), ", 1");
    snprintf(
        text, sizeof text,
        "{\"model_type\": \"phi3\", " SIZES(
            3072, 8192, 32, 24, 8,
            200064) "\"auto_map\": {\"AutoConfig\": \"configuration_phi3.Phi3Config\", \"AutoTokenizer\": "
                    "\"Xenova/gpt-4o\"}, "
                    "\"partial_rotary_factor\": 0.75, \"max_position_embeddings\": 131072, \"tie_word_embeddings\": "
                    "true, "
                    "\"original_max_position_embeddings\": 4096, \"sliding_window\": 262144, \"rope_theta\": 10000.0, "
                    "\"rope_scaling\": {\"long_factor\": [%s], \"short_factor\": [%s], \"type\": \"longrope\"}}",
        ones, ones);
    CHECK_OK(parse(text, &model));
    CHECK_I64(sl_model_parameters(&model), 3836021760);
    CHECK(model.rope.rotary == 96 && model.head_dim == 128);
    CHECK_OK(parse(phi3, &model));
    CHECK_OK(sl_model_config_text(&model, &written));
    CHECK_CONTAINS(written.data, "\"original_max_position_embeddings\": 4096");
    sl_text_free(&written);
}

TEST(layers)
{
    sl_model model;
    CHECK_OK(parse(mistral, &model));
    CHECK(sl_model_window(&model, 0) == 4096 && sl_model_window(&model, 31) == 4096);
    CHECK_OK(parse(with(mistral, "\"sliding_window\": 4096", "\"sliding_window\": null"), &model));
    CHECK(sl_model_window(&model, 0) == 0);
    CHECK_OK(
        parse(with(mistral, "\"sliding_window\": 4096, ", ""), &model)); /* transformers' default is none of null */
    CHECK(sl_model_window(&model, 0) == 4096);
    CHECK_OK(parse(qwen25, &model));
    CHECK(sl_model_window(&model, 23) == 0 && model.qkv_bias && !model.o_bias && model.tied);
    CHECK_OK(parse(with(qwen25, "\"use_sliding_window\": false", "\"use_sliding_window\": true"), &model));
    CHECK(sl_model_window(&model, 20) == 0 && sl_model_window(&model, 21) == 32768);
    CHECK_OK(parse(smollm3, &model));
    CHECK(model.tied && model.rope.theta == 5e6f);
    for (int64_t i = 0; i < model.layers; i++)
        CHECK((sl_model_rope_of(&model, i) == NULL) == (i % 4 == 3));
    CHECK_OK(parse(phi3, &model));
    CHECK(sl_model_window(&model, 5) == 2047 && model.rope.rotary == 0);
}

/* The program's arithmetic counts what windows leave. */
TEST(step_flops)
{
    static const char *const texts[] = {phi4, "\"sliding_window\": 100", "\"sliding_window\": 300"};
    for (int64_t i = 0; i < SL_COUNT(texts); i++) {
        sl_model model;
        sl_program *program;
        sl_program_config config = {.chunking = {256, 2, 512}, .precision = SL_PRECISION_BF16, .max_segments = 1};
        CHECK_OK(parse(i ? with(phi4, "\"full_attn_mod\": 1", texts[i]) : phi4, &model));
        CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
        CHECK(program->flops == sl_model_step_flops(&model, 256, 2));
        sl_program_destroy(program);
    }
}

/* Transformers' numbers for Qwen2.5 at 128k, and for Phi-4-mini's context. */
TEST(magnitudes)
{
    sl_model model;
    CHECK_OK(parse(
        with(qwen25, "\"use_mrope\": false",
             "\"rope_scaling\": {\"factor\": 4.0, \"original_max_position_embeddings\": 32768, \"type\": \"yarn\"}"),
        &model));
    CHECK(model.rope.scaling == SL_ROPE_YARN && model.rope.low_freq == 1 && model.rope.high_freq == 32);
    CHECK_NEAR(model.rope.magnitude, 1.138629436, 1e-7);
    CHECK_OK(parse(phi4, &model));
    CHECK(model.rope.scaling == SL_ROPE_LONG && model.rope.rotary == 4 && model.rope.long_factors[1] == 30);
    CHECK_NEAR(model.rope.magnitude, 1.190238071, 1e-7);
}

/* What transformers 5 writes of the same models. */
TEST(both_dialects)
{
    static const char *const pairs[][3] = {
        {mistral, "\"rope_theta\": 10000.0",
         "\"rope_parameters\": {\"rope_theta\": 10000.0, \"rope_type\": \"default\"}"},
        {smollm3, "\"rope_scaling\": null, \"rope_theta\": 5000000.0",
         "\"dtype\": \"float32\", \"rope_parameters\": {\"rope_theta\": 5000000.0, \"rope_type\": \"default\"}"},
        {phi4, "\"rope_scaling\": {\"type\": \"longrope\", ",
         "\"rope_parameters\": {\"type\": \"longrope\", \"rope_type\": \"longrope\", \"partial_rotary_factor\": 0.5, "
         "\"rope_theta\": 10000.0, \"original_max_position_embeddings\": 4096, "}};
    for (int64_t i = 0; i < SL_COUNT(pairs); i++) {
        sl_model old, new;
        CHECK_OK(parse(pairs[i][0], &old));
        CHECK_OK(parse(with(pairs[i][0], pairs[i][1], pairs[i][2]), &new));
        CHECK(memcmp(&old.rope, &new.rope, sizeof old.rope) == 0);
        CHECK(memcmp(old.layer_flags, new.layer_flags, sizeof old.layer_flags) == 0 && old.window == new.window);
    }
}

static void check_refused(const char *text, sl_status status, const char *message)
{
    sl_model model;
    CHECK_FAILS(parse(text, &model), status);
    CHECK_CONTAINS(sl_error_message(), message);
    CHECK_CONTAINS(sl_error_message(), "config.json");
}

static void check_rope_refused(const char *object, sl_status status, const char *message)
{
    char member[512];
    snprintf(member, sizeof member, "\"rope_scaling\": {%s}", object);
    check_refused(with(qwen25, "\"use_mrope\": false", member), status, message);
}

TEST(rope_refused)
{
    check_rope_refused("\"type\": \"linear\", \"rope_type\": \"dynamic\", \"factor\": 2", SL_E_FORMAT, "remove one");
    check_rope_refused("\"type\": \"mrope\"", SL_E_UNSUPPORTED, "mrope");
    check_rope_refused("\"type\": \"linear\"", SL_E_FORMAT, "\"factor\" is missing");
    check_rope_refused("\"type\": \"linear\", \"factor\": 0.5", SL_E_FORMAT, "factor");
    check_rope_refused("\"type\": \"linear\", \"factor\": 2, \"beta_fast\": 3", SL_E_UNSUPPORTED, "beta_fast");
    check_rope_refused("\"factor\": 2", SL_E_UNSUPPORTED, "factor");
    check_rope_refused("\"type\": \"linear\", \"factor\": 2, \"rope_theta\": 5", SL_E_FORMAT, "rope_theta");
    check_rope_refused("\"type\": \"yarn\", \"factor\": 2, \"beta_fast\": 1, \"beta_slow\": 2", SL_E_FORMAT,
                       "beta_slow");
    check_rope_refused("\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": [1]", SL_E_FORMAT,
                       "list of 32 numbers");
    check_rope_refused("\"type\": \"llama3\", \"factor\": 2, \"low_freq_factor\": 1", SL_E_FORMAT, "high_freq_factor");
    check_rope_refused("\"full_attention\": {\"rope_type\": \"default\"}", SL_E_UNSUPPORTED, "full_attention");
    check_refused(with(qwen25, "\"use_mrope\": false", "\"partial_rotary_factor\": 0.5"), SL_E_UNSUPPORTED,
                  "partial_rotary_factor");
    check_refused(
        with(qwen25, "\"use_mrope\": false", "\"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}"),
        SL_E_UNSUPPORTED, "differ by types of layers");
    check_refused(with(qwen25, "\"use_mrope\": false",
                       "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}, "
                       "\"rope_parameters\": {\"type\": \"linear\", \"factor\": 3}"),
                  SL_E_FORMAT, "\"rope_scaling\" and \"rope_parameters\" differ");
    check_refused(
        with(phi4, "\"type\": \"longrope\"", "\"type\": \"longrope\", \"original_max_position_embeddings\": 8"),
        SL_E_FORMAT, "original_max_position_embeddings");
    check_refused(with(phi4, "[1, 1.5]", "[1, null]"), SL_E_FORMAT, "short_factor");
    check_refused(with(phi4, "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 0.4"), SL_E_UNSUPPORTED,
                  "partial_rotary_factor");
}

TEST(layers_refused)
{
    check_refused(with(mistral, "\"sliding_window\": 4096", "\"sliding_window\": 0"), SL_E_FORMAT, "sliding_window");
    check_refused(with(qwen25, "\"use_mrope\": false", "\"use_mrope\": true"), SL_E_UNSUPPORTED, "use_mrope");
    check_refused(with(qwen25, "\"use_mrope\": false", "\"layer_types\": [\"full_attention\"]"), SL_E_FORMAT,
                  "list of 24 names");
    check_refused(with(qwen25, "\"max_window_layers\": 21", "\"max_window_layers\": -1"), SL_E_FORMAT,
                  "max_window_layers");
    check_refused(with(phi4, "\"full_attn_mod\": 1", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]"),
                  SL_E_UNSUPPORTED, "\"layer_types\" contradicts \"sliding_window\"");
    check_refused(with(phi4, "\"full_attn_mod\": 1", "\"layer_types\": [\"full_attention\", \"chunked_attention\"]"),
                  SL_E_UNSUPPORTED, "something else");
    check_refused(with(phi4, "\"full_attn_mod\": 1", "\"full_attn_mod\": 2"), SL_E_UNSUPPORTED, "full_attn_mod");
    check_refused(with(phi3, "modeling_phi3.", "modeling_other."), SL_E_UNSUPPORTED, "auto_map");
    check_refused(with(phi3, "\"resid_pdrop\": 0.0", "\"resid_pdrop\": 0.1"), SL_E_UNSUPPORTED, "resid_pdrop");
    check_refused(with(smollm3, "\"sliding_window\": null", "\"no_rope_layers\": [1, 0]"), SL_E_FORMAT,
                  "no_rope_layers");
    const char *small = with(phi4, "\"full_attn_mod\": 1", "\"use_sliding_window\": false");
    small = with(small, "\"phi3\"", "\"qwen3\"");
    small =
        with(small, "\"use_sliding_window\": false", "\"layer_types\": [\"full_attention\", \"sliding_attention\"]");
    small = with(small, "\"partial_rotary_factor\": 0.5, ", "");
    small = with(small,
                 "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 1.5], \"long_factor\": [1.2, 30]}",
                 "\"head_dim\": 8");
    check_refused(small, SL_E_FORMAT, "\"use_sliding_window\" is false");
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(published);
    RUN(phi4_mini);
    RUN(layers);
    RUN(step_flops);
    RUN(magnitudes);
    RUN(both_dialects);
    RUN(rope_refused);
    RUN(layers_refused);
    return test_end();
}
