/*
 * "quantization_config" of config.json. Weights of 8-bit floating-point numbers with scales are read and multiplied with them
 * (safetensors_data.c), whoever wrote them; from then on the model has ordinary weights, and its checkpoints no such key. How the
 * writer wanted activations to be quantized is about inference and does not matter. Whatever else there is, 4-bit codes, integers or
 * sparsity, is refused by name: read as if it were ordinary weights it would train another model.
 */
#include <string.h>

#include "model/internal.h"

static const char *text_of(const sl_json *object, const char *key)
{
    const sl_json *value = object ? sl_json_get(object, key) : NULL;
    return value && value->kind == SL_JSON_STRING ? value->string : "";
}

static sl_status refuse(const char *file, const sl_json *member, const char *key, const char *value)
{
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s:%d: \"quantization_config\" has \"%s\": \"%s\"; only 8-bit floating-point weights (fp8, fbgemm_fp8, "
        "compressed-tensors) are supported: use the model as it was before it was quantized",
        file, member->line, key, value[0] ? value : "?");
}

/* A group of compressed-tensors: {"weights": {"num_bits": 8, "type": "float", ...}, ...}. */
static sl_status check_group(const char *file, const sl_json *member, const sl_json *group)
{
    const sl_json *weights = sl_json_get(group, "weights");
    const sl_json *bits = weights ? sl_json_get(weights, "num_bits") : NULL, *symmetric = NULL;
    if (!weights || weights->kind == SL_JSON_NULL)
        return SL_OK;
    if (strcmp(text_of(weights, "type"), "float") != 0)
        return refuse(file, member, "type", text_of(weights, "type"));
    if (!bits || !bits->is_integer || bits->integer != 8)
        return refuse(file, member, "num_bits", bits && bits->is_integer && bits->integer == 4 ? "4" : "other than 8");
    symmetric = sl_json_get(weights, "symmetric");
    if (symmetric && symmetric->kind == SL_JSON_BOOL && !symmetric->boolean)
        return refuse(file, member, "symmetric", "false");
    return SL_OK;
}

static sl_status check_compressed(const char *file, const sl_json *member)
{
    const sl_json *groups = sl_json_get(member, "config_groups"), *sparsity = sl_json_get(member, "sparsity_config");
    const char *format = text_of(member, "format"), *sparse = text_of(sparsity, "format");
    if (strcmp(format, "float-quantized") != 0 && strcmp(format, "naive-quantized") != 0)
        return refuse(file, member, "format", format);
    if (sparse[0] && strcmp(sparse, "dense") != 0)
        return refuse(file, member, "sparsity_config", sparse);
    for (const sl_json *group = groups ? groups->child : NULL; group; group = group->next)
        SL_TRY(check_group(file, member, group));
    return SL_OK;
}

sl_status sl_config_check_quantization(const char *file, const sl_json *member)
{
    const char *method = text_of(member, "quant_method");
    if (member->kind == SL_JSON_NULL)
        return SL_OK;
    if (strcmp(method, "compressed-tensors") == 0)
        return check_compressed(file, member);
    if (strcmp(method, "fp8") != 0 && strcmp(method, "fbgemm_fp8") != 0)
        return refuse(file, member, "quant_method", method);
    const char *format = text_of(member, "fmt");
    if (format[0] && strcmp(format, "e4m3") != 0 && strcmp(format, "e5m2") != 0)
        return refuse(file, member, "fmt", format);
    return SL_OK;
}
