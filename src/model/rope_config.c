/*
 * Rotary positions in config.json, in both of its dialects:
 *
 *     transformers 4     "rope_theta": t, "rope_scaling": {"rope_type": ..., "factor": ...}, "rope_local_base_freq": t
 *     transformers 5     "rope_parameters": {"rope_theta": t, "rope_type": ..., "factor": ...}, or one such object for each type of
 *                        layers: {"full_attention": {...}, "sliding_attention": {...}}
 *
 * The first one is written, because both versions read it. What a file says twice must agree. Keys without meaning for a type are
 * refused: "factor" beside "default" is a mistake that readers treat differently.
 */
#include <math.h>
#include <string.h>

#include "model/internal.h"

typedef struct rope_reader {
    const char *file;
    const sl_json *root;
    const sl_decoder_keys *keys;
    int64_t max_positions, head_dim;
} rope_reader;

static const char *const common_keys[] = {"rope_type", "type", "rope_theta", NULL};
static const char *const common_keys_partial[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor", NULL};

/* A type has two rows where it has two names. The first of them is written. */
static const struct rope_type {
    const char *name;
    sl_rope_scaling scaling;
    const char *keys[9];
} rope_types[] = {
    {"default", SL_ROPE_LLAMA3, {NULL}}, /* without a factor */
    {"linear", SL_ROPE_LINEAR, {"factor"}},
    {"dynamic", SL_ROPE_DYNAMIC, {"factor"}},
    {"llama3", SL_ROPE_LLAMA3, {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}},
    {"yarn",
     SL_ROPE_YARN,
     {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate",
      "original_max_position_embeddings"}},
    {"longrope",
     SL_ROPE_LONG,
     {"factor", "attention_factor", "short_factor", "long_factor", "original_max_position_embeddings"}},
    {"su",
     SL_ROPE_LONG,
     {"factor", "attention_factor", "short_factor", "long_factor", "original_max_position_embeddings"}},
};

static bool given(const sl_json *object, const char *key)
{
    const sl_json *member = sl_json_get(object, key);
    return member && member->kind != SL_JSON_NULL;
}

static sl_status number(const char *file, const sl_json *object, const char *key, double least, double most, float *out)
{
    if (!given(object, key))
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is missing", file, key);
    return sl_config_number(file, object, key, 0, least, most, out);
}

/* A number that may stand in two places. */
static sl_status number_of_two(const char *file, const sl_json *first, const sl_json *second, const char *key,
                               double otherwise, double least, double most, float *out)
{
    float other;
    SL_TRY(sl_config_number(file, second, key, otherwise, least, most, &other));
    SL_TRY(sl_config_number(file, first, key, (double) other, least, most, out));
    if (given(first, key) && given(second, key) && *out != other)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" is %g and, in another place, %g; remove one", file, key, (double) *out,
                       (double) other);
    return SL_OK;
}

static sl_status find_type(const rope_reader *r, const sl_json *object, const struct rope_type **out)
{
    const char *type, *old;
    SL_TRY(sl_json_string_or(r->file, object, "type", "default", &old));
    SL_TRY(sl_json_string_or(r->file, object, "rope_type", old, &type));
    if (given(object, "type") && strcmp(type, old) != 0)
        return sl_fail(SL_E_FORMAT, "%s: \"rope_type\" is \"%s\", but \"type\" is \"%s\"; remove one", r->file, type,
                       old);
    if (r->keys->rope.yarn_is_long && strcmp(type, "yarn") == 0)
        type = "longrope";
    for (int64_t i = 0; i < SL_COUNT(rope_types); i++)
        if (strcmp(rope_types[i].name, type) == 0) {
            *out = &rope_types[i];
            return SL_OK;
        }
    return sl_fail(SL_E_UNSUPPORTED,
                   "%s: rope type \"%s\" is not known; default, linear, dynamic, llama3, yarn and longrope are",
                   r->file, type);
}

/* Beside the object it counts more than inside, and without it the context is that of the positions. */
static sl_status read_original(const rope_reader *r, const sl_json *object, sl_model_rope *rope)
{
    const char *key = "original_max_position_embeddings";
    const int64_t absent = r->keys->rope.original_context;
    int64_t outside, inside;
    SL_TRY(sl_config_count(r->file, r->root, key, absent ? absent : r->max_positions, INT32_MAX, &outside));
    SL_TRY(sl_config_count(r->file, object, key, outside, INT32_MAX, &inside));
    if ((given(r->root, key) || absent) && inside != outside)
        return sl_fail(
            SL_E_FORMAT, "%s: \"%s\" is %lld beside the object with the rope type%s and %lld inside; correct one",
            r->file, key, (long long) outside, given(r->root, key) ? "" : " unless it is given", (long long) inside);
    rope->original_context = (int32_t) inside;
    return SL_OK;
}

static double positions_ratio(int64_t max_positions, const sl_model_rope *rope)
{
    return (double) max_positions / rope->original_context;
}

/* ---- types ---- */

static sl_status read_llama3(const rope_reader *r, const sl_json *object, sl_model_rope *rope)
{
    SL_TRY(number(r->file, object, "factor", 1, 1e6, &rope->factor));
    SL_TRY(number(r->file, object, "low_freq_factor", 1e-3, 1e6, &rope->low_freq));
    SL_TRY(number(r->file, object, "high_freq_factor", 1e-3, 1e6, &rope->high_freq));
    SL_TRY(read_original(r, object, rope));
    if (!(rope->high_freq > rope->low_freq))
        return sl_fail(SL_E_FORMAT, "%s: \"high_freq_factor\" %g must be greater than \"low_freq_factor\" %g", r->file,
                       (double) rope->high_freq, (double) rope->low_freq);
    return SL_OK;
}

static double yarn_scale(double factor, double multiplier)
{
    return factor <= 1 ? 1 : 0.1 * multiplier * log(factor) + 1;
}

static sl_status read_yarn(const rope_reader *r, const sl_json *object, sl_model_rope *rope)
{
    float scale, all;
    bool truncate;
    SL_TRY(read_original(r, object, rope));
    SL_TRY(sl_config_number(r->file, object, "factor", positions_ratio(r->max_positions, rope), 1, 1e6, &rope->factor));
    SL_TRY(sl_config_number(r->file, object, "beta_fast", 32, 0, 1e6, &rope->high_freq));
    SL_TRY(sl_config_number(r->file, object, "beta_slow", 1, 0, 1e6, &rope->low_freq));
    rope->high_freq = rope->high_freq > 0 ? rope->high_freq : 32; /* transformers reads 0 as absent */
    rope->low_freq = rope->low_freq > 0 ? rope->low_freq : 1;
    if (!(rope->high_freq > rope->low_freq))
        return sl_fail(SL_E_FORMAT, "%s: \"beta_fast\" %g must be greater than \"beta_slow\" %g", r->file,
                       (double) rope->high_freq, (double) rope->low_freq);
    SL_TRY(sl_json_bool_or(r->file, object, "truncate", true, &truncate));
    rope->exact_ramp = !truncate;
    SL_TRY(sl_config_number(r->file, object, "mscale", 0, 0, 1e6, &scale));
    SL_TRY(sl_config_number(r->file, object, "mscale_all_dim", 0, 0, 1e6, &all));
    double magnitude = scale > 0 && all > 0 ? yarn_scale((double) rope->factor, (double) scale) /
                                                  yarn_scale((double) rope->factor, (double) all)
                                            : yarn_scale((double) rope->factor, 1);
    return sl_config_number(r->file, object, "attention_factor", magnitude, 1e-3, 1e3, &rope->magnitude);
}

static sl_status read_factors(const rope_reader *r, const sl_json *object, const char *key, int64_t pairs, float *out)
{
    const sl_json *list = sl_json_get(object, key);
    if (!list || list->kind != SL_JSON_ARRAY || list->count != pairs)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" must be a list of %lld numbers, one for each rotated pair of a head",
                       r->file, key, (long long) pairs);
    for (const sl_json *item = list->child; item; item = item->next) {
        if (item->kind != SL_JSON_NUMBER || !(item->number >= 1e-3 && item->number <= 1e6))
            return sl_fail(SL_E_FORMAT, "%s:%d: \"%s\" holds something else than numbers between 0.001 and 1e6",
                           r->file, item->line, key);
        *out++ = (float) item->number;
    }
    return SL_OK;
}

static double long_magnitude(int64_t max_positions, const sl_model_rope *rope)
{
    double factor = rope->factor > 0 ? (double) rope->factor : positions_ratio(max_positions, rope);
    return factor <= 1 ? 1 : sqrt(1 + log(factor) / log(rope->original_context));
}

static sl_status read_long(const rope_reader *r, const sl_json *object, sl_model_rope *rope)
{
    const int64_t pairs = (rope->rotary ? rope->rotary : r->head_dim) / 2;
    SL_TRY(read_original(r, object, rope));
    SL_TRY(sl_config_number(r->file, object, "factor", 0, 0, 1e6, &rope->factor));
    if (rope->original_context < 2 || pairs > SL_COUNT(rope->short_factors))
        return sl_fail(SL_E_FORMAT,
                       "%s: longrope needs \"original_max_position_embeddings\" above 1 and at most %lld pairs",
                       r->file, (long long) SL_COUNT(rope->short_factors));
    SL_TRY(read_factors(r, object, "short_factor", pairs, rope->short_factors));
    SL_TRY(read_factors(r, object, "long_factor", pairs, rope->long_factors));
    return sl_config_number(r->file, object, "attention_factor", long_magnitude(r->max_positions, rope), 1e-3, 1e3,
                            &rope->magnitude);
}

static sl_status read_type(const rope_reader *r, const struct rope_type *type, const sl_json *object,
                           sl_model_rope *rope)
{
    rope->scaling = (int32_t) type->scaling;
    switch (type->scaling) {
    case SL_ROPE_DYNAMIC:
        rope->original_context = (int32_t) r->max_positions;
        if ((rope->rotary ? rope->rotary : r->head_dim) < 4)
            return sl_fail(SL_E_FORMAT, "%s: dynamic rotation needs several pairs in a head", r->file);
        return number(r->file, object, "factor", 1, 1e6, &rope->factor);
    case SL_ROPE_LINEAR:
        return number(r->file, object, "factor", 1, 1e6, &rope->factor);
    case SL_ROPE_YARN:
        if (!(rope->theta > 1))
            return sl_fail(SL_E_FORMAT, "%s: \"rope_theta\" must be greater than 1 for yarn", r->file);
        return read_yarn(r, object, rope);
    case SL_ROPE_LONG:
        return read_long(r, object, rope);
    default:
        return strcmp(type->name, "llama3") == 0 ? read_llama3(r, object, rope) : SL_OK;
    }
}

/* ---- objects ---- */

/* `object` NULL: none, so that all is as the rest of the file says. */
static sl_status read_object(const rope_reader *r, const sl_json *object, const char *theta_key, double theta,
                             sl_model_rope *rope)
{
    const struct rope_type *type = &rope_types[0];
    const bool partial = r->keys->rope.partial;
    memset(rope, 0, sizeof *rope); /* padding, too: descriptions are compared as bytes */
    SL_TRY(sl_config_number(r->file, r->root, theta_key, theta, 1, 1e12, &rope->theta));
    if (object) {
        const float outside = rope->theta;
        SL_TRY(find_type(r, object, &type));
        SL_TRY(sl_config_check_keys(r->file, object, partial ? common_keys_partial : common_keys, type->keys));
        SL_TRY(sl_config_number(r->file, object, "rope_theta", (double) outside, 1, 1e12, &rope->theta));
        if (given(r->root, theta_key) && rope->theta != outside)
            return sl_fail(SL_E_FORMAT, "%s: \"rope_theta\" is %g, but \"%s\" is %g; remove one", r->file,
                           (double) rope->theta, theta_key, (double) outside);
    }
    if (partial) {
        SL_TRY(number_of_two(r->file, object, r->root, "partial_rotary_factor", 1, 1e-6, 1, &rope->partial));
        const int32_t rotary = (int32_t) ((double) r->head_dim * sl_config_decimal(rope->partial));
        if (rotary < 2 || rotary % 2)
            return sl_fail(SL_E_UNSUPPORTED, "%s: \"partial_rotary_factor\" %g of %lld elements is no even number",
                           r->file, (double) rope->partial, (long long) r->head_dim);
        rope->rotary = rotary < r->head_dim ? rotary : 0;
    }
    if (r->keys->rope.original_context) /* for readers that want it whatever the type */
        SL_TRY(read_original(r, object, rope));
    return object ? read_type(r, type, object, rope) : SL_OK;
}

static sl_status object_or_null(const char *file, const sl_json *root, const char *key, const sl_json **out)
{
    const sl_json *object = sl_json_get(root, key);
    *out = object && object->kind != SL_JSON_NULL ? object : NULL;
    if (*out && object->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: \"%s\" must be an object or null", file, key);
    return SL_OK;
}

static sl_status refuse_layer_types(const rope_reader *r, const sl_json *object)
{
    if (given(object, "full_attention") || given(object, "sliding_attention"))
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"rope_parameters\" differ by types of layers; \"model_type\" %s has one",
                       r->file, r->keys->architecture);
    return SL_OK;
}

/* An object for each type of layers. */
static sl_status read_nested(const rope_reader *r, const sl_json *nested, sl_model *model)
{
    static const char *const types[] = {"full_attention", "sliding_attention", NULL};
    const sl_json *full, *sliding;
    SL_TRY(sl_config_check_keys(r->file, nested, types, NULL));
    SL_TRY(object_or_null(r->file, nested, types[0], &full));
    SL_TRY(object_or_null(r->file, nested, types[1], &sliding));
    SL_TRY(read_object(r, full, "rope_theta", r->keys->rope.theta, &model->rope));
    return read_object(r, sliding, "rope_local_base_freq", r->keys->rope.local_theta, &model->local_rope);
}

sl_status sl_rope_read_config(const char *file, const sl_json *root, const sl_decoder_keys *keys, int64_t max_positions,
                              sl_model *model)
{
    const rope_reader r = {file, root, keys, max_positions, model->head_dim};
    const double theta = keys->rope.theta > 0 ? keys->rope.theta : 10000, local = keys->rope.local_theta;
    const sl_json *old, *new;
    sl_model_rope again;
    SL_TRY(object_or_null(file, root, "rope_scaling", &old));
    SL_TRY(object_or_null(file, root, "rope_parameters", &new));
    if (local > 0 && new && (given(new, "full_attention") || given(new, "sliding_attention"))) {
        if (old)
            return sl_fail(SL_E_FORMAT, "%s: \"rope_scaling\" and \"rope_parameters\" are both given; remove one",
                           file);
        return read_nested(&r, new, model);
    }
    if (new)
        SL_TRY(refuse_layer_types(&r, new));
    SL_TRY(read_object(&r, old ? old : new, "rope_theta", theta, &model->rope));
    if (old && new) {
        SL_TRY(read_object(&r, new, "rope_theta", theta, &again));
        if (memcmp(&again, &model->rope, sizeof again) != 0)
            return sl_fail(SL_E_FORMAT, "%s: \"rope_scaling\" and \"rope_parameters\" differ; remove one", file);
    }
    return local > 0 ? read_object(&r, NULL, "rope_local_base_freq", local, &model->local_rope) : SL_OK;
}

/* ---- writing ---- */

static void put_factors(sl_json_writer *w, const char *key, const float *factors, int64_t pairs)
{
    sl_json_begin_array(w, key);
    for (int64_t i = 0; i < pairs; i++)
        sl_config_put(w, NULL, factors[i]);
    sl_json_end_array(w);
}

static void put_magnitude(sl_json_writer *w, float magnitude, double otherwise)
{
    if (magnitude != (float) otherwise)
        sl_config_put(w, "attention_factor", magnitude);
}

/* Phi-3's own reader takes three keys and no more, and looks for the others beside the object. */
static void put_long(sl_json_writer *w, const sl_decoder_keys *keys, const sl_model *model)
{
    const sl_model_rope *rope = &model->rope;
    const int64_t pairs = (rope->rotary ? rope->rotary : model->head_dim) / 2;
    const int64_t positions = model->max_positions ? model->max_positions : keys->max_positions;
    sl_json_put_string(w, keys->rope.yarn_is_long ? "type" : "rope_type", "longrope");
    put_factors(w, "short_factor", rope->short_factors, pairs);
    put_factors(w, "long_factor", rope->long_factors, pairs);
    if (rope->factor > 0)
        sl_config_put(w, "factor", rope->factor);
    put_magnitude(w, rope->magnitude, long_magnitude(positions ? positions : SL_DECODER_POSITIONS, rope));
    if (!keys->rope.original_context)
        sl_json_put_i64(w, "original_max_position_embeddings", rope->original_context);
}

static void put_scaling(sl_json_writer *w, const sl_decoder_keys *keys, const sl_model *model)
{
    const sl_model_rope *rope = &model->rope;
    if (rope->scaling == SL_ROPE_LONG) {
        put_long(w, keys, model);
        return;
    }
    static const char *const names[] = {"llama3", "linear", "dynamic", "yarn"};
    sl_json_put_string(w, "rope_type", names[rope->scaling]);
    sl_config_put(w, "factor", rope->factor);
    if (rope->scaling == SL_ROPE_LLAMA3) {
        sl_config_put(w, "low_freq_factor", rope->low_freq);
        sl_config_put(w, "high_freq_factor", rope->high_freq);
    } else if (rope->scaling == SL_ROPE_YARN) {
        sl_config_put(w, "beta_fast", rope->high_freq);
        sl_config_put(w, "beta_slow", rope->low_freq);
        put_magnitude(w, rope->magnitude, yarn_scale((double) rope->factor, 1));
        if (rope->exact_ramp)
            sl_json_put_bool(w, "truncate", false);
    }
    if (rope->scaling == SL_ROPE_LLAMA3 || rope->scaling == SL_ROPE_YARN)
        sl_json_put_i64(w, "original_max_position_embeddings", rope->original_context);
}

void sl_rope_write_config(const sl_model *model, const sl_decoder_keys *keys, sl_json_writer *w)
{
    const sl_model_rope *rope = &model->rope;
    sl_config_put(w, "rope_theta", rope->theta);
    if (model->local_rope.theta > 0)
        sl_config_put(w, "rope_local_base_freq", model->local_rope.theta);
    if (rope->rotary)
        sl_config_put(w, "partial_rotary_factor", rope->partial);
    if (keys->rope.original_context)
        sl_json_put_i64(w, "original_max_position_embeddings", rope->original_context);
    if (rope->factor > 0 || rope->scaling == SL_ROPE_LONG) {
        sl_json_begin_object(w, "rope_scaling");
        put_scaling(w, keys, model);
        sl_json_end_object(w);
    }
}
