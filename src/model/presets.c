/* The built-in models. layers, dim, heads, kv heads, head dim, ffn, vocabulary. */
#include <string.h>

#include "model/internal.h"

/* Llama-3 shapes of published benchmarks, all untied and without frequency scaling. llama3-8b is Meta's Llama-3-8B; the others are
 * no released model: -1.5b is Llama-3.2-1B with a head of its own, -15b is 8B with 64 layers, -32b has Qwen2.5-32B's dimensions
 * without its biases. */
#define LLAMA3(preset, l, d, h, g, e, f, v)                                                                          \
    {                                                                                                                \
        .family = &sl_family_llama, .name = preset, .layers = l, .dim = d, .heads = h, .kv_heads = g, .head_dim = e, \
        .ffn = f, .vocab = v, .norm_eps = 1e-5f, .rope_style = SL_ROPE_HALF, .rope = {.theta = 500000},              \
        .init_std = 0.02f                                                                                            \
    }

/* Meta's Llama-3.2-1B, from its config.json. */
#define LLAMA32_1B                                                                                                \
    {                                                                                                             \
        .family = &sl_family_llama, .name = "llama3.2-1b", .layers = 16, .dim = 2048, .heads = 32, .kv_heads = 8, \
        .head_dim = 64, .ffn = 8192, .vocab = 128256, .max_positions = 131072, .tied = true, .norm_eps = 1e-5f,   \
        .rope_style = SL_ROPE_HALF,                                                                               \
        .rope = {.theta = 500000, .factor = 32, .low_freq = 1, .high_freq = 4, .original_context = 8192},         \
        .init_std = 0.02f                                                                                         \
    }

/* The sizes of a well-known language-modelling course: interleaved rotation, Glorot initialisation. */
#define BASICS(preset, l, d, h, f)                                                                             \
    {                                                                                                          \
        .family = &sl_family_llama, .name = preset, .layers = l, .dim = d, .heads = h, .kv_heads = h,          \
        .head_dim = (d) / (h), .ffn = f, .vocab = 10000, .norm_eps = 1e-5f, .rope_style = SL_ROPE_INTERLEAVED, \
        .rope = {                                                                                              \
            .theta = 10000                                                                                     \
        }                                                                                                      \
    }

#define GPT2(preset, l, d, h)                                                                                       \
    {                                                                                                               \
        .family = &sl_family_gpt2, .name = preset, .layers = l, .dim = d, .heads = h, .kv_heads = h,                \
        .head_dim = (d) / (h), .ffn = 4 * (d), .vocab = 50257, .max_seqlen = 1024, .tied = true, .norm_eps = 1e-5f, \
        .rope_style = SL_ROPE_NONE, .gelu_tanh = true, .init_std = 0.02f                                            \
    }

/* Bytes as tokens: what `make run` and tests train in seconds. */
#define BYTES(preset, l, d, h, g, f)                                                                  \
    {                                                                                                 \
        .family = &sl_family_llama, .name = preset, .layers = l, .dim = d, .heads = h, .kv_heads = g, \
        .head_dim = (d) / (h), .ffn = f, .vocab = 256, .norm_eps = 1e-5f, .rope_style = SL_ROPE_HALF, \
        .rope = {.theta = 10000}, .init_std = 0.02f                                                   \
    }

static const sl_model presets[] = {
    BYTES("byte-test", 2, 64, 4, 2, 176),
    BYTES("byte-nano", 4, 128, 4, 2, 352),
    BYTES("byte-tiny", 4, 256, 4, 4, 704),
    BYTES("byte-small", 6, 384, 6, 6, 1024),
    BASICS("tiny", 4, 512, 16, 1344),
    BASICS("small", 12, 768, 12, 3072),
    BASICS("medium", 24, 1024, 16, 4096),
    BASICS("large", 36, 1280, 20, 5120),
    BASICS("xl", 48, 1600, 25, 6400),
    BASICS("2.7b", 32, 2560, 32, 10240),
    GPT2("gpt2", 12, 768, 12),
    GPT2("gpt2-medium", 24, 1024, 16),
    GPT2("gpt2-large", 36, 1280, 20),
    GPT2("gpt2-xl", 48, 1600, 25),
    LLAMA32_1B,
    LLAMA3("llama3-1.5b", 16, 2048, 32, 8, 64, 8192, 128256),
    LLAMA3("llama3-8b", 32, 4096, 32, 8, 128, 14336, 128256),
    LLAMA3("llama3-15b", 64, 4096, 32, 8, 128, 14336, 128256),
    LLAMA3("llama3-32b", 64, 5120, 40, 8, 128, 27648, 152064),
};

int64_t sl_model_presets(const sl_model **out)
{
    *out = presets;
    return SL_COUNT(presets);
}

const char *sl_model_renamed(const char *name)
{
    static const struct {
        const char *old, *now;
    } renamed[] = {{"llama3-1b", "it is called llama3-1.5b now; Llama-3.2-1B itself is llama3.2-1b"}};
    for (int64_t i = 0; i < SL_COUNT(renamed); i++)
        if (strcmp(renamed[i].old, name) == 0)
            return renamed[i].now;
    return NULL;
}
