/* Presets, parameter counts, config.json in and out, hostile values. */
#include "core/file.h"
#include "model/internal.h"
#include "program/program.h"
#include "test.h"

static sl_status parse(const char *text, sl_model *model)
{
    return sl_model_parse_config("config.json", text, strlen(text), model);
}

/* Elements of all parameters of a built graph, padding left out. */
static int64_t count_parameters(const sl_model *model)
{
    sl_graph *graph;
    sl_graph_config config = {.tokens = 8, .max_segments = 1, .dtype = SL_BF16};
    int64_t count = 0;
    CHECK_OK(sl_graph_create(&config, &graph));
    CHECK_OK(sl_model_build(model, graph));
    for (int32_t p = 0; p < graph->n_params; p++) {
        const sl_param *param = &graph->params[p];
        int64_t rows = 0;
        for (int i = 0; i < param->n_parts; i++) {
            CHECK_I64(param->parts[i].row, rows);
            rows += param->parts[i].rows;
        }
        CHECK_I64(rows, param->type.dim[0]); /* the parts are the whole */
        CHECK(param->init != SL_INIT_NORMAL || param->init_std > 0);
        CHECK(param->decay == (param->type.rank == 2));
        count += sl_type_count(&param->type);
    }
    sl_graph_destroy(graph);
    return count;
}

TEST(presets)
{
    const sl_model *presets;
    int64_t count = sl_model_presets(&presets);
    CHECK(count >= 16);
    for (int64_t i = 0; i < count; i++) {
        sl_model model;
        CHECK_OK(sl_model_find(presets[i].name, &model));
        CHECK_OK(sl_model_check(&model));
        CHECK_I64(count_parameters(&model), sl_model_parameters(&model));
    }
}

/* In millions, as published. */
TEST(parameter_counts)
{
    static const struct {
        const char *name;
        double millions, within;
    } known[] = {{"tiny", 22.7, 0.05},        {"small", 128.6, 0.05},
                 {"medium", 423.2, 0.05},     {"large", 969.4, 0.05},
                 {"xl", 1998, 0.5},           {"2.7b", 3407, 0.5},
                 {"gpt2", 124.4, 0.05},       {"gpt2-medium", 354.8, 0.05},
                 {"gpt2-large", 774.0, 0.05}, {"gpt2-xl", 1557.6, 0.05},
                 {"llama3-8b", 8030.3, 0.05}};
    for (int64_t i = 0; i < SL_COUNT(known); i++) {
        sl_model model;
        CHECK_OK(sl_model_find(known[i].name, &model));
        CHECK_NEAR((double) sl_model_parameters(&model) / 1e6, known[i].millions, known[i].within);
    }
}

/* The first size's figures by hand: S 256, d 768, a 768, k 768, f 3072, V 10000, L 12. */
TEST(step_flops)
{
    sl_model model;
    CHECK_OK(sl_model_find("small", &model));
    double layer = 2.0 * 256 * 768 * (2 * 768 + 2 * 768 + 3 * 3072), attention = 6.0 * 256 * 256 * 768;
    CHECK_NEAR(sl_model_step_flops(&model, 256, 4), 4 * (12 * (3 * layer + attention) + 6.0 * 256 * 768 * 10000), 0);
}

static void check_same(const sl_model *a, const sl_model *b)
{
    sl_model x = *a, y = *b;
    memset(x.name, 0, sizeof x.name);
    memset(y.name, 0, sizeof y.name);
    CHECK(x.family == y.family && x.layers == y.layers && x.dim == y.dim && x.heads == y.heads &&
          x.kv_heads == y.kv_heads);
    CHECK(x.head_dim == y.head_dim && x.ffn == y.ffn && x.vocab == y.vocab && x.max_seqlen == y.max_seqlen &&
          x.tied == y.tied);
    CHECK(x.norm_eps == y.norm_eps && x.rope_style == y.rope_style && x.rope.theta == y.rope.theta);
    CHECK(x.rope.factor == y.rope.factor && x.rope.low_freq == y.rope.low_freq && x.rope.high_freq == y.rope.high_freq);
    CHECK(x.rope.original_context == y.rope.original_context && x.gelu_tanh == y.gelu_tanh && x.dropout == y.dropout);
    CHECK(x.init_std == y.init_std && x.max_positions == y.max_positions);
}

/* Every number of meta-llama/Llama-3.2-1B's config.json, and its published count of parameters. */
static const char llama32[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0, "
    "\"bos_token_id\": 128000, \"eos_token_id\": 128001, \"head_dim\": 64, \"hidden_act\": \"silu\", "
    "\"hidden_size\": 2048, \"initializer_range\": 0.02, \"intermediate_size\": 8192, "
    "\"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\", "
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 16, \"num_key_value_heads\": 8, \"pretraining_tp\": 1, "
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 32.0, \"high_freq_factor\": 4.0, "
    "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, "
    "\"rope_theta\": 500000.0, \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\", "
    "\"transformers_version\": \"4.45.0.dev0\", \"use_cache\": true, \"vocab_size\": 128256}";

TEST(llama32_1b)
{
    sl_model preset, published, untied;
    CHECK_OK(sl_model_find("llama3.2-1b", &preset));
    CHECK_OK(parse(llama32, &published));
    check_same(&preset, &published);
    CHECK_I64(sl_model_parameters(&preset), 1235814400);
    CHECK_OK(sl_model_find("llama3-1.5b", &untied));
    CHECK_I64(sl_model_parameters(&untied), 1235814400 + 128256 * 2048);
    CHECK_FAILS(sl_model_find("llama3-1b", &preset), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "llama3-1.5b now; Llama-3.2-1B itself is llama3.2-1b");
}

TEST(configs_come_back)
{
    const sl_model *presets;
    int64_t count = sl_model_presets(&presets);
    for (int64_t i = 0; i < count; i++) {
        sl_model model = presets[i], back;
        if (model.family == &sl_family_llama && i % 4 == 2)
            model.rope.factor = model.rope.low_freq = 1, model.rope.high_freq = 4, model.rope.original_context = 512;
        if (i % 2 && model.family == &sl_family_llama) {
            model.rope.factor = 8, model.rope.low_freq = 1, model.rope.high_freq = 4,
            model.rope.original_context = 8192;
            model.tied = true;
            model.max_positions = 131072;
        }
        if (model.family == &sl_family_gpt2) /* nothing that a reader would fill in */
            model.ffn = 3 * model.dim, model.max_seqlen = 96, model.gelu_tanh = i % 2, model.tied = false,
            model.norm_eps = 1e-6f, model.init_std = 0.03f;
        CHECK_OK(sl_model_write_config(&model, test_path("config.json")));
        CHECK_OK(sl_model_find(test_path("config.json"), &back));
        check_same(&model, &back);
        CHECK_OK(sl_model_find(test_dir(), &back)); /* the folder that holds it */
        check_same(&model, &back);
    }
}

static const char llama31[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0, "
    "\"bos_token_id\": 128000,"
    "\"eos_token_id\": [128001, 128008], \"hidden_act\": \"silu\", \"hidden_size\": 4096, \"initializer_range\": 0.02,"
    "\"intermediate_size\": 14336, \"max_position_embeddings\": 131072, \"mlp_bias\": false, \"model_type\": \"llama\","
    "\"num_attention_heads\": 32, \"num_hidden_layers\": 32, \"num_key_value_heads\": 8, \"pretraining_tp\": 1,"
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": {\"factor\": 8.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0,"
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, \"rope_theta\": 500000.0,"
    "\"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.43.0\", "
    "\"use_cache\": true,"
    "\"vocab_size\": 128256}";

static const char gpt2[] =
    "{\"activation_function\": \"gelu_new\", \"architectures\": [\"GPT2LMHeadModel\"], \"attn_pdrop\": 0.1,"
    "\"bos_token_id\": 50256, \"embd_pdrop\": 0.1, \"eos_token_id\": 50256, \"initializer_range\": 0.02,"
    "\"layer_norm_epsilon\": 1e-05, \"model_type\": \"gpt2\", \"n_ctx\": 1024, \"n_embd\": 768, \"n_head\": 12, "
    "\"n_layer\": 12,"
    "\"n_positions\": 1024, \"resid_pdrop\": 0.1, \"summary_activation\": null, \"summary_first_dropout\": 0.1,"
    "\"summary_proj_to_labels\": true, \"summary_type\": \"cls_index\", \"summary_use_proj\": true,"
    "\"task_specific_params\": {\"text-generation\": {\"do_sample\": true, \"max_length\": 50}}, \"vocab_size\": "
    "50257}";

/* As published (0.6B), and its count of parameters. */
static const char qwen3[] =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"attention_bias\": false, \"attention_dropout\": 0.0, "
    "\"bos_token_id\": 151643, \"eos_token_id\": 151645, \"head_dim\": 128, \"hidden_act\": \"silu\", "
    "\"hidden_size\": 1024, \"initializer_range\": 0.02, \"intermediate_size\": 3072, "
    "\"max_position_embeddings\": 40960, \"max_window_layers\": 28, \"model_type\": \"qwen3\", "
    "\"num_attention_heads\": 16, \"num_hidden_layers\": 28, \"num_key_value_heads\": 8, \"rms_norm_eps\": 1e-06, "
    "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, \"tie_word_embeddings\": true, "
    "\"torch_dtype\": \"bfloat16\", \"transformers_version\": \"4.51.0\", \"use_cache\": true, "
    "\"use_sliding_window\": false, \"vocab_size\": 151936}";

/* A text with one member replaced. */
static const char *with(const char *text, const char *member, const char *replacement)
{
    static char out[4096];
    const char *at = strstr(text, member);
    REQUIRE(at != NULL);
    snprintf(out, sizeof out, "%.*s%s%s", (int) (at - text), text, replacement, at + strlen(member));
    return out;
}

static void check_refused(const char *text, sl_status status, const char *message)
{
    sl_model model;
    CHECK_FAILS(parse(text, &model), status);
    CHECK_CONTAINS(sl_error_message(), message);
    CHECK_CONTAINS(sl_error_message(), "config.json");
}

TEST(qwen3_config)
{
    sl_model model, back;
    CHECK_OK(parse(qwen3, &model));
    CHECK_I64(sl_model_parameters(&model), 596049920);
    CHECK_I64(count_parameters(&model), 596049920);
    CHECK_OK(sl_model_write_config(&model, test_path("config.json")));
    CHECK_OK(sl_model_find(test_path("config.json"), &back));
    check_same(&model, &back);
    /* A window that is switched off, and transformers' default of an absent key. */
    CHECK_OK(parse(with(qwen3, "\"sliding_window\": null", "\"sliding_window\": 4096"), &model));
    CHECK_OK(parse(with(qwen3, "\"head_dim\": 128, ", ""), &model));
    CHECK_I64(model.head_dim, 128);
    CHECK_OK(parse(with(qwen3, "\"attention_bias\": false", "\"attention_bias\": true"), &model));
    CHECK(model.qkv_bias && model.o_bias && !model.mlp_bias);
    check_refused(with(qwen3, "\"num_key_value_heads\": 8, ", ""), SL_E_FORMAT, "num_key_value_heads");
    check_refused(with(qwen3, "\"rope_scaling\": null", "\"rope_scaling\": {\"rope_type\": \"mrope\"}"),
                  SL_E_UNSUPPORTED, "mrope");
    check_refused(with(qwen3, "\"use_cache\": true", "\"sluice_rope_order\": \"halves\""), SL_E_UNSUPPORTED,
                  "sluice_rope_order");
}

TEST(real_configs)
{
    sl_model model, preset;
    CHECK_OK(parse(llama31, &model));
    CHECK_OK(sl_model_find("llama3-8b", &preset));
    CHECK(model.rope.factor == 8 && model.rope.original_context == 8192 && model.max_positions == 131072);
    model.rope.factor = model.rope.low_freq = model.rope.high_freq = 0, model.rope.original_context = 0;
    model.max_positions = 0;
    check_same(&model, &preset);
    CHECK_OK(parse(with(gpt2, "\"attn_pdrop\": 0.1", "\"attn_pdrop\": 0"), &model));
    CHECK_OK(sl_model_find("gpt2", &preset));
    CHECK(model.dropout == 0.1f);
    model.dropout = 0;
    check_same(&model, &preset);
    CHECK_OK(parse("{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 2, \"vocab_size\": 99, "
                   "\"n_ctx\": 512, \"attn_pdrop\": 0}",
                   &model)); /* the old name of n_positions; the rest by transformers' defaults */
    CHECK(model.max_seqlen == 512 && model.ffn == 256 && model.tied && model.gelu_tanh);
}

TEST(both_forms_of_rope)
{
    sl_model old, new;
    CHECK_OK(parse(llama31, &old));
    static char text[4096];
    snprintf(text, sizeof text, "%s",
             with(llama31, "\"rope_scaling\": {", "\"rope_parameters\": {\"rope_theta\": 500000.0, "));
    CHECK_OK(parse(with(text, "\"rope_theta\": 500000.0,\"tie", "\"tie"), &new));
    check_same(&old, &new);
}

/* Keys without effect on arithmetic are ignored, neutral values are accepted. */
TEST(accepted_configs)
{
    static const char *const members[] = {
        "\"_num_labels\": 5, \"_anything\": {\"a\": [1]}, \"unsloth_fixed\": true, \"unsloth_version\": \"2025.1\"",
        "\"sliding_window\": null, \"use_sliding_window\": false, \"layer_types\": [\"full_attention\", "
        "\"full_attention\"]",
        "\"quantization_config\": null, \"pruned_heads\": {}, \"is_encoder_decoder\": false, \"num_experts\": 0",
        "\"something_new\": null, \"head_dim\": null, \"logits_scaling\": 1.0, \"partial_rotary_factor\": 1",
        "\"id2label\": {\"0\": \"A\"}, \"pad_token_id\": null, \"chunk_size_feed_forward\": 0",
    };
    sl_model plain, model;
    CHECK_OK(parse(llama31, &plain));
    for (int64_t i = 0; i < SL_COUNT(members); i++) {
        CHECK_OK(parse(with(llama31, "\"use_cache\": true", members[i]), &model));
        check_same(&model, &plain);
    }
    static char marked[4096];
    snprintf(marked, sizeof marked, "\xef\xbb\xbf%s", llama31);
    CHECK_OK(parse(marked, &model));
    check_same(&model, &plain);
    CHECK_OK(
        parse(with(llama31, "\"num_attention_heads\": 32", "\"num_attention_heads\": 24, \"head_dim\": 128"), &model));
    CHECK_I64(model.head_dim, 128);
}

/* Keys for others go into the written config, special tokens first, as far as there is space; the file's own do not. */
TEST(kept_keys)
{
    sl_model model, again;
    char *text, many[4096];
    size_t length;
    CHECK_OK(parse(with(llama31, "\"use_cache\": true",
                        "\"use_cache\": true, \"unsloth_fixed\": true, \"pad_token_id\": null, "
                        "\"_name_or_path\": \"x\", \"temperature\": 0.6, \"mlp_bias2\": null"),
                   &model));
    CHECK_OK(sl_model_write_config(&model, test_path("kept.json")));
    CHECK_OK(sl_file_read_all(test_path("kept.json"), 1 << 20, &text, &length));
    CHECK_CONTAINS(text, "\"bos_token_id\": 128000");
    CHECK_CONTAINS(text, "128008");
    CHECK_CONTAINS(text, "\"pad_token_id\": null");
    CHECK_CONTAINS(text, "\"use_cache\": true");
    CHECK_CONTAINS(text, "\"unsloth_fixed\": true");
    CHECK_CONTAINS(text, "\"temperature\": 0.6");
    CHECK(!strstr(text, "torch_dtype") && !strstr(text, "_name_or_path") && !strstr(text, "transformers_version"));
    CHECK(!strstr(text, "mlp_bias2"));
    sl_free(text);
    CHECK_OK(sl_model_find(test_path("kept.json"), &again));
    CHECK_STR(again.kept, model.kept);
    size_t used = (size_t) snprintf(many, sizeof many, "\"prefix\": \"");
    memset(many + used, 'x', SL_MODEL_KEPT_BYTES);
    snprintf(many + used + SL_MODEL_KEPT_BYTES, 64, "\", \"pad_token_id\": 7");
    CHECK_OK(parse(with(llama31, "\"use_cache\": true", many), &model));
    CHECK_CONTAINS(model.kept, "\"pad_token_id\":7");
    CHECK(!strstr(model.kept, "xxx"));
}

TEST(refused_configs)
{
    sl_model model;
    check_refused(with(llama31, "\"use_cache\": true", "\"qk_norm\": true"), SL_E_UNSUPPORTED, "qk_norm");
    static const char *const values[] = {
        "\"sliding_window\": 4096",
        "\"quantization_config\": {\"bits\": 4}",
        "\"quantization_config\": {\"quant_method\": \"gptq\"}",
        "\"quantization_config\": {\"quant_method\": \"fp8\", \"fmt\": \"nf4\"}",
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\"}",
        "\"quantization_config\": {\"quant_method\": \"compressed-tensors\", \"format\": "
        "\"float-quantized\", \"config_groups\": {\"group_0\": {\"weights\": {\"num_bits\": 4, "
        "\"type\": \"float\"}}}}",
        "\"layer_types\": [\"full_attention\", \"sliding_attention\"]",
        "\"attention_dropout\": 0.25",
        "\"final_logit_softcapping\": 30.0",
        "\"partial_rotary_factor\": 0.75",
        "\"auto_map\": {\"AutoModel\": \"x.Y\"}",
        "\"something_new\": false"};
    for (int64_t i = 0; i < SL_COUNT(values); i++) {
        char key[64];
        snprintf(key, sizeof key, "config.json:1: %s", i == SL_COUNT(values) - 1 ? "key " : "");
        snprintf(key + strlen(key), sizeof key - strlen(key), "%.*s", (int) (strchr(values[i], ':') - values[i]),
                 values[i]);
        static char text[4096];
        snprintf(text, sizeof text, "%s", with(llama31, "\"attention_dropout\": 0.0, ", ""));
        check_refused(with(text, "\"use_cache\": true", values[i]), SL_E_UNSUPPORTED, key);
    }
    check_refused(with(llama31, "\"rope_type\": \"llama3\"", "\"rope_type\": \"llama3\", \"beta_fast\": 32"),
                  SL_E_UNSUPPORTED, "beta_fast");
    check_refused(with(llama31, "\"num_attention_heads\": 32", "\"num_attention_heads\": 24"), SL_E_USAGE,
                  "\"hidden_size\" 4096 is no multiple of \"num_attention_heads\" 24");
    check_refused(with(llama31, "\"use_cache\": true", "\"sluice_rope_order\": \"other\""), SL_E_FORMAT,
                  "sluice_rope_order");
    check_refused(with(llama31, "\"silu\"", "\"relu\""), SL_E_UNSUPPORTED, "hidden_act");
    check_refused(with(llama31, "\"attention_bias\": false", "\"attention_bias\": 1"), SL_E_FORMAT, "attention_bias");
    check_refused(with(llama31, "\"rope_type\": \"llama3\"", "\"rope_type\": \"yarn\""), SL_E_UNSUPPORTED,
                  "low_freq_factor");
    check_refused(with(llama31, "\"high_freq_factor\": 4.0", "\"high_freq_factor\": 0.5"), SL_E_FORMAT,
                  "high_freq_factor");
    check_refused(with(llama31, "\"model_type\": \"llama\"", "\"model_type\": \"mamba\""), SL_E_UNSUPPORTED, "mamba");
    check_refused(with(llama31, "\"vocab_size\": 128256", "\"bos\": 1"), SL_E_UNSUPPORTED, "bos");
    check_refused(with(llama31, "\"hidden_size\": 4096, ", ""), SL_E_FORMAT, "hidden_size");
    check_refused(with(llama31, "4096", "-4096"), SL_E_FORMAT, "hidden_size");
    check_refused(with(llama31, "4096", "9223372036854775807"), SL_E_FORMAT, "hidden_size");
    check_refused(with(llama31, "4096", "1e300"), SL_E_FORMAT, "hidden_size");
    check_refused(with(llama31, "4096", "\"big\""), SL_E_FORMAT, "hidden_size");
    check_refused(with(llama31, "\"num_hidden_layers\": 32", "\"num_hidden_layers\": 100000000"), SL_E_FORMAT,
                  "num_hidden_layers");
    check_refused(with(llama31, "\"num_key_value_heads\": 8", "\"num_key_value_heads\": 7"), SL_E_USAGE,
                  "key/value heads");
    check_refused(with(llama31, "\"num_attention_heads\": 32", "\"num_attention_heads\": 4095"), SL_E_USAGE, "head");
    check_refused(with(llama31, "\"rms_norm_eps\": 1e-05", "\"rms_norm_eps\": -1"), SL_E_FORMAT, "rms_norm_eps");
    check_refused(with(llama31, "\"rope_theta\": 500000.0", "\"rope_theta\": 0"), SL_E_FORMAT, "rope_theta");
    check_refused(with(gpt2, "\"n_head\": 12", "\"n_head\": 13"), SL_E_FORMAT, "n_head");
    check_refused(gpt2, SL_E_UNSUPPORTED, "\"attn_pdrop\" is 0.1;");
    check_refused(with(gpt2, "\"attn_pdrop\": 0.1,", ""), SL_E_UNSUPPORTED, "\"attn_pdrop\" is 0.1 unless it is given");
    check_refused(with(gpt2, "\"embd_pdrop\": 0.1", "\"embd_pdrop\": 0.2"), SL_E_UNSUPPORTED, "embd_pdrop");
    check_refused(with(gpt2, "gelu_new", "relu"), SL_E_UNSUPPORTED, "activation_function");
    check_refused("[]", SL_E_FORMAT, "object");
    check_refused("{", SL_E_FORMAT, "config.json");
    CHECK_FAILS(sl_model_find("no-such-model", &model), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "llama3-8b");
    CHECK_FAILS(sl_model_find(test_path("empty"), &model), SL_E_USAGE);
    CHECK_OK(sl_dir_create(test_path("empty")));
    CHECK_FAILS(sl_model_find(test_path("empty"), &model), SL_E_IO);
}

/* Sizes have no default: a file that leaves one out, or has one that is 0 or too large, is refused by its name. */
TEST(sizes_must_be_given)
{
    static const struct {
        const char *text, *key;
        int64_t most;
    } sizes[] = {{llama31, "hidden_size", SL_MODEL_MAX_DIM},
                 {llama31, "intermediate_size", SL_MODEL_MAX_DIM},
                 {llama31, "num_hidden_layers", SL_MODEL_MAX_LAYERS},
                 {llama31, "num_attention_heads", SL_MODEL_MAX_DIM},
                 {llama31, "vocab_size", SL_MODEL_MAX_DIM},
                 {gpt2, "n_embd", SL_MODEL_MAX_DIM},
                 {gpt2, "n_layer", SL_MODEL_MAX_LAYERS},
                 {gpt2, "n_head", SL_MODEL_MAX_DIM},
                 {gpt2, "vocab_size", SL_MODEL_MAX_DIM}};
    for (int64_t i = 0; i < SL_COUNT(sizes); i++) {
        const int64_t values[] = {0, -1, sizes[i].most + 1};
        char key[64], other[128], message[128];
        snprintf(key, sizeof key, "\"%s\"", sizes[i].key);
        snprintf(other, sizeof other, "\"_%s\"", sizes[i].key);
        snprintf(message, sizeof message, "config.json: %s is missing", key);
        check_refused(with(sizes[i].text, key, other), SL_E_FORMAT, message);
        for (int64_t k = 0; k < SL_COUNT(values); k++) {
            snprintf(other, sizeof other, "%s: %" PRId64 ", \"_%s\"", key, values[k], sizes[i].key);
            snprintf(message, sizeof message, "%s is %" PRId64 "; it must lie between 1 and %" PRId64, key, values[k],
                     sizes[i].most);
            check_refused(with(sizes[i].text, key, other), SL_E_FORMAT, message);
        }
    }
}

TEST(checks)
{
    sl_model model;
    CHECK_OK(sl_model_find("byte-test", &model));
    int64_t *const fields[] = {&model.layers,   &model.dim, &model.heads, &model.kv_heads,
                               &model.head_dim, &model.ffn, &model.vocab};
    const int64_t wrong[] = {INT64_MIN, -1, 0, INT64_C(1) << 40, INT64_MAX};
    for (int64_t i = 0; i < SL_COUNT(fields); i++)
        for (int64_t k = 0; k < SL_COUNT(wrong); k++) {
            int64_t saved = *fields[i];
            *fields[i] = wrong[k];
            CHECK_FAILS(sl_model_check(&model), SL_E_USAGE);
            *fields[i] = saved;
        }
    model.layers = SL_MODEL_MAX_LAYERS, model.dim = model.vocab = SL_MODEL_MAX_DIM, model.ffn = 4 * SL_MODEL_MAX_DIM;
    model.head_dim = 256, model.heads = model.kv_heads = SL_MODEL_MAX_DIM / 256; /* no sum overflows, even so */
    CHECK(sl_model_parameters(&model) > INT64_C(1) << 59);
    CHECK_FAILS(sl_model_check(&model), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "parameters");
    CHECK_OK(sl_model_find("gpt2", &model));
    model.max_seqlen = 0;
    CHECK_FAILS(sl_model_check(&model), SL_E_USAGE);
}

TEST(every_preset_becomes_a_program)
{
    const sl_model *presets;
    int64_t count = sl_model_presets(&presets);
    for (int64_t i = 0; i < count; i++) {
        sl_model model = presets[i];
        for (int sliced = 0; sliced < 2; sliced++) {
            sl_program *program;
            sl_program_config config = {.chunking = {256, 2, sliced ? 100 : 512},
                                        .precision = SL_PRECISION_BF16_MASTER,
                                        .gated = true,
                                        .max_segments = 4};
            CHECK_OK(sl_program_create(&config, sl_build_model, &model, &program));
            CHECK(program->flops == sl_model_step_flops(&model, 256, 2));
            sl_program_destroy(program);
        }
    }
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(presets);
    RUN(parameter_counts);
    RUN(step_flops);
    RUN(llama32_1b);
    RUN(configs_come_back);
    RUN(qwen3_config);
    RUN(real_configs);
    RUN(both_forms_of_rope);
    RUN(accepted_configs);
    RUN(kept_keys);
    RUN(refused_configs);
    RUN(sizes_must_be_given);
    RUN(checks);
    RUN(every_preset_becomes_a_program);
    return test_end();
}
