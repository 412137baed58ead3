/* The models of tests/golden, and how near to them a device has to come. */
#ifndef SL_TESTS_MODEL_GOLDEN_MODELS_H
#define SL_TESTS_MODEL_GOLDEN_MODELS_H

/* How far PyTorch itself is off. Its gradients in bf16 are 0.5 % from exact ones in plain models and 1.3 % in those of transformers,
 * which round more intermediates; a row of small f32 gradients there is 1.3e-5 off. All of Gemma's bf16 gradients together, with two
 * norms behind each other, are 1.64 % off (`whole`). */
typedef struct golden_model {
    const char *name;
    double row, bf16, whole;
} golden_model;
static const golden_model golden_models[] = {{"llama", 1e-5, 1e-2, 1e-2},          {"llama-tied", 1e-5, 1e-2, 1e-2},
                                             {"gpt2", 1e-5, 1e-2, 1e-2},           {"qwen3", 1.5e-5, 1.5e-2, 1e-2},
                                             {"qwen3-tied", 1.5e-5, 1.5e-2, 1e-2}, {"gemma3", 1.5e-5, 1.7e-2, 1.64e-2}};

/* In f32 alone: what tests/golden/make_families.py makes. */
static const char *const golden_families[] = {
    "mistral-window", "mistral-tied", "qwen2-window",   "qwen2-tied",    "qwen3-window", "llama-biases",
    "llama-long",     "smollm3",      "smollm3-window", "phi3-window",   "phi3-long",    "phi3-short",
    "olmo2",          "olmo2-tied",   "gemma2",         "gemma2-untied", "gemma3",       "gemma3-untied"};

#endif
