/* Machines to plan for. A profile is a flat JSON object; one table of its keys serves reader and writer, and every number is
 * required: a profile with a forgotten bandwidth would plan nonsense without a word. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/json.h"
#include "core/suggest.h"
#include "device/device.h"

enum { LARGEST_FILE = 1 << 20 };

/* The same share in both dtypes. */
#define BOTH(...)                                       \
    {                                                   \
        [SL_F32] = __VA_ARGS__, [SL_BF16] = __VA_ARGS__ \
    }

/* The H200 as measured (GEMM sustained for 8 s, attention at 8k, pinned copies both ways at once); the others scaled
 * from their data sheets by the same shares. */
static const sl_hardware profiles[] = {
    {.name = "h200",
     .memory_bytes = {149250000000, 134200000000},
     .peak_flops = {[SL_F32] = 67e12, [SL_BF16] = 989e12},
     .matmul_efficiency = BOTH(0.68),
     .attention_efficiency = BOTH({0.62, 0.54}),
     .memory_bandwidth = {4.2e12, 106e9},
     .link_bandwidth = {55.5e9, 55.3e9},
     .link_bandwidth_both = 50.2e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 4e-6,
     .host_optimizer_bandwidth = 120e9},
    {.name = "h100",
     .memory_bytes = {85000000000, 540000000000},
     .peak_flops = {[SL_F32] = 67e12, [SL_BF16] = 989e12},
     .matmul_efficiency = BOTH(0.66),
     .attention_efficiency = BOTH({0.60, 0.52}),
     .memory_bandwidth = {2.9e12, 200e9},
     .link_bandwidth = {55e9, 55e9},
     .link_bandwidth_both = 50e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 4e-6,
     .host_optimizer_bandwidth = 150e9},
    {.name = "a100",
     .memory_bytes = {85000000000, 540000000000},
     .peak_flops = {[SL_F32] = 19.5e12, [SL_BF16] = 312e12},
     .matmul_efficiency = BOTH(0.80),
     .attention_efficiency = BOTH({0.60, 0.50}),
     .memory_bandwidth = {1.75e12, 150e9},
     .link_bandwidth = {25e9, 25e9},
     .link_bandwidth_both = 22e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 4e-6,
     .host_optimizer_bandwidth = 100e9,
     .attention_keeps_scores = true},
    {.name = "rtx5090",
     .memory_bytes = {34000000000, 134200000000},
     .peak_flops = {[SL_F32] = 105e12, [SL_BF16] = 209.5e12},
     .matmul_efficiency = BOTH(0.85),
     .attention_efficiency = BOTH({0.70, 0.60}),
     .memory_bandwidth = {1.55e12, 60e9},
     .link_bandwidth = {55e9, 55e9},
     .link_bandwidth_both = 45e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 4e-6,
     .host_optimizer_bandwidth = 50e9,
     .attention_keeps_scores = true},
    {.name = "rtx4090",
     .memory_bytes = {25700000000, 134200000000},
     .peak_flops = {[SL_F32] = 82.6e12, [SL_BF16] = 165.2e12},
     .matmul_efficiency = BOTH(0.90),
     .attention_efficiency = BOTH({0.75, 0.60}),
     .memory_bandwidth = {0.92e12, 60e9},
     .link_bandwidth = {25e9, 25e9},
     .link_bandwidth_both = 21e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 4e-6,
     .host_optimizer_bandwidth = 50e9,
     .attention_keeps_scores = true},
    {.name = "rtx3090",
     .memory_bytes = {25300000000, 134200000000},
     .peak_flops = {[SL_F32] = 35.6e12, [SL_BF16] = 71e12},
     .matmul_efficiency = BOTH(0.90),
     .attention_efficiency = BOTH({0.75, 0.60}),
     .memory_bandwidth = {0.84e12, 40e9},
     .link_bandwidth = {25e9, 25e9},
     .link_bandwidth_both = 21e9,
     .link_latency_s = 10e-6,
     .launch_latency_s = 5e-6,
     .host_optimizer_bandwidth = 35e9,
     .attention_keeps_scores = true},
};

static const char *const names[] = {"h200", "h100", "a100", "rtx5090", "rtx4090", "rtx3090", "this"};

const char *const *sl_hardware_names(int64_t *count)
{
    *count = SL_COUNT(names);
    return names;
}

/* ---- the file format ---- */

/* Flags may be left out; they are false then. */
typedef enum field_kind { FIELD_BYTES, FIELD_RATE, FIELD_SHARE, FIELD_SECONDS, FIELD_FLAG } field_kind;
typedef struct field {
    const char *key;
    field_kind kind;
    size_t offset;
} field;

#define AT(member) offsetof(sl_hardware, member)
static const field fields[] = {
    {"device_memory_bytes", FIELD_BYTES, AT(memory_bytes[SL_TIER_DEVICE])},
    {"host_memory_bytes", FIELD_BYTES, AT(memory_bytes[SL_TIER_HOST])},
    {"peak_flops_f32", FIELD_RATE, AT(peak_flops[SL_F32])},
    {"peak_flops_bf16", FIELD_RATE, AT(peak_flops[SL_BF16])},
    {"matmul_efficiency_f32", FIELD_SHARE, AT(matmul_efficiency[SL_F32])},
    {"matmul_efficiency_bf16", FIELD_SHARE, AT(matmul_efficiency[SL_BF16])},
    {"attention_forward_efficiency_f32", FIELD_SHARE, AT(attention_efficiency[SL_F32][0])},
    {"attention_forward_efficiency_bf16", FIELD_SHARE, AT(attention_efficiency[SL_BF16][0])},
    {"attention_backward_efficiency_f32", FIELD_SHARE, AT(attention_efficiency[SL_F32][1])},
    {"attention_backward_efficiency_bf16", FIELD_SHARE, AT(attention_efficiency[SL_BF16][1])},
    {"device_memory_bandwidth", FIELD_RATE, AT(memory_bandwidth[SL_TIER_DEVICE])},
    {"host_memory_bandwidth", FIELD_RATE, AT(memory_bandwidth[SL_TIER_HOST])},
    {"link_in_bandwidth", FIELD_RATE, AT(link_bandwidth[0])},
    {"link_out_bandwidth", FIELD_RATE, AT(link_bandwidth[1])},
    {"link_both_bandwidth", FIELD_RATE, AT(link_bandwidth_both)},
    {"link_latency_s", FIELD_SECONDS, AT(link_latency_s)},
    {"launch_latency_s", FIELD_SECONDS, AT(launch_latency_s)},
    {"host_optimizer_bandwidth", FIELD_RATE, AT(host_optimizer_bandwidth)},
    {"shared_cores", FIELD_FLAG, AT(shared_cores)},
    {"attention_keeps_scores", FIELD_FLAG, AT(attention_keeps_scores)},
};
#undef AT

static sl_status refuse(const char *path, const sl_json *value, const char *key, const char *want)
{
    return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"%s\" must be %s", path, value->line, value->column, key, want);
}

static sl_status read_field(const char *path, const sl_json *value, const field *f, sl_hardware *hardware)
{
    char *to = (char *) hardware + f->offset;
    double number = value->number;
    bool is_number = value->kind == SL_JSON_NUMBER;
    switch (f->kind) {
    case FIELD_BYTES:
        if (value->kind == SL_JSON_STRING) {
            size_t bytes;
            if (sl_parse_bytes(value->string, &bytes) != SL_OK || bytes == 0 || bytes > INT64_MAX)
                return refuse(path, value, f->key, "a size such as 24GiB");
            memcpy(to, &bytes, sizeof bytes);
            return SL_OK;
        }
        if (!is_number || !value->is_integer || value->integer <= 0)
            return refuse(path, value, f->key, "a whole number of bytes, or a size such as \"24GiB\"");
        memcpy(to, &(size_t){(size_t) value->integer}, sizeof(size_t));
        return SL_OK;
    case FIELD_RATE:
        if (!is_number || !(number > 0) || number > 1e21)
            return refuse(path, value, f->key, "a rate per second greater than 0");
        break;
    case FIELD_SHARE:
        if (!is_number || !(number > 0) || number > 1)
            return refuse(path, value, f->key, "a share between 0 and 1");
        break;
    case FIELD_SECONDS:
        if (!is_number || !(number >= 0) || number > 1)
            return refuse(path, value, f->key, "a time between 0 and 1 s");
        break;
    case FIELD_FLAG:
        if (value->kind != SL_JSON_BOOL)
            return refuse(path, value, f->key, "true or false");
        memcpy(to, &value->boolean, sizeof value->boolean);
        return SL_OK;
    }
    memcpy(to, &number, sizeof number);
    return SL_OK;
}

static sl_status read_members(const char *path, const sl_json *root, sl_hardware *hardware)
{
    if (root->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: a hardware profile is a JSON object", path);
    bool seen[SL_COUNT(fields)] = {false};
    for (const sl_json *member = root->child; member; member = member->next) {
        int64_t i = 0;
        if (strcmp(member->key, "name") == 0) {
            if (member->kind != SL_JSON_STRING || member->length == 0 || member->length >= sizeof hardware->name ||
                strlen(member->string) != member->length)
                return refuse(path, member, "name", "a text of 1 to 63 bytes");
            memcpy(hardware->name, member->string, member->length + 1);
            continue;
        }
        while (i < SL_COUNT(fields) && strcmp(fields[i].key, member->key) != 0)
            i++;
        if (i == SL_COUNT(fields))
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"%s\" is no key of a hardware profile", path, member->line,
                           member->column, member->key);
        SL_TRY(read_field(path, member, &fields[i], hardware));
        seen[i] = true;
    }
    for (int64_t i = 0; i < SL_COUNT(fields); i++)
        if (!seen[i] && fields[i].kind != FIELD_FLAG)
            return sl_fail(SL_E_FORMAT, "%s: the key \"%s\" is missing from the hardware profile", path, fields[i].key);
    return SL_OK;
}

/* `sluice system --json` tells more than the profile, which is one member of it. */
static const sl_json *profile_in(const sl_json *root)
{
    const sl_json *kind = sl_json_get(root, "kind"), *profile = sl_json_get(root, "profile");
    bool is_system = kind && kind->kind == SL_JSON_STRING && strcmp(kind->string, "system") == 0;
    return is_system && profile ? profile : root;
}

sl_status sl_hardware_parse(const char *path, const char *text, size_t length, sl_hardware *hardware)
{
    sl_region *region;
    const sl_json *root;
    sl_hardware read = {.name = "profile"};
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, path, text, length, &root);
    if (status == SL_OK)
        status = read_members(path, profile_in(root), &read);
    sl_region_destroy(region);
    if (status == SL_OK)
        *hardware = read;
    return status;
}

void sl_hardware_put(const sl_hardware *hardware, sl_json_writer *w)
{
    sl_json_put_string(w, "name", hardware->name);
    for (int64_t i = 0; i < SL_COUNT(fields); i++) {
        const char *from = (const char *) hardware + fields[i].offset;
        double number;
        size_t bytes;
        if (fields[i].kind == FIELD_BYTES) {
            memcpy(&bytes, from, sizeof bytes);
            sl_json_put_i64(w, fields[i].key, (int64_t) bytes);
        } else if (fields[i].kind == FIELD_FLAG) {
            bool flag;
            memcpy(&flag, from, sizeof flag);
            sl_json_put_bool(w, fields[i].key, flag);
        } else {
            memcpy(&number, from, sizeof number);
            sl_json_put_f64(w, fields[i].key, number);
        }
    }
}

sl_status sl_hardware_write(const sl_hardware *hardware, const char *path)
{
    sl_json_writer w = {0};
    sl_json_begin_object(&w, NULL);
    sl_hardware_put(hardware, &w);
    sl_json_end_object(&w);
    sl_text_append(&w.text, "\n", 1);
    sl_status status = sl_text_status(&w.text);
    if (status == SL_OK)
        status = sl_file_write_atomic(path, w.text.data, w.text.length);
    sl_text_free(&w.text);
    return status;
}

static sl_status this_machine(sl_hardware *hardware)
{
    sl_device *device;
    sl_device_config config = {.max_commands = 1, .max_events = 1};
    SL_TRY(sl_device_open("auto", &config, &device));
    device->class->hardware(device, hardware);
    sl_device_close(device);
    return SL_OK;
}

sl_status sl_hardware_find(const char *name_or_path, sl_hardware *hardware)
{
    for (int64_t i = 0; i < SL_COUNT(profiles); i++)
        if (strcmp(profiles[i].name, name_or_path) == 0) {
            *hardware = profiles[i];
            return SL_OK;
        }
    if (strcmp(name_or_path, "this") == 0)
        return this_machine(hardware);
    sl_suggestion suggestion = {.word = name_or_path};
    for (int64_t i = 0; i < SL_COUNT(profiles); i++)
        sl_suggest(&suggestion, profiles[i].name);
    if (!sl_file_exists(name_or_path) && sl_suggested(&suggestion))
        return sl_fail(SL_E_USAGE, "there is no hardware \"%s\": did you mean \"%s\"?", name_or_path,
                       sl_suggested(&suggestion));
    if (!strpbrk(name_or_path, "./") && !sl_file_exists(name_or_path))
        return sl_fail(
            SL_E_USAGE,
            "there is no hardware \"%s\"; use h200, h100, a100, rtx5090, rtx4090, rtx3090, this, or the path of a "
            "profile",
            name_or_path);
    char *text;
    size_t length;
    SL_TRY(sl_file_read_all(name_or_path, LARGEST_FILE, &text, &length));
    sl_status status = sl_hardware_parse(name_or_path, text, length, hardware);
    sl_free(text);
    return status;
}

void sl_hardware_limits(const sl_hardware *hardware, size_t limit[SL_TIER_COUNT])
{
    double device = (double) hardware->memory_bytes[SL_TIER_DEVICE],
           host = (double) hardware->memory_bytes[SL_TIER_HOST];
    limit[SL_TIER_DEVICE] = (size_t) (hardware->shared_cores ? 0.6 * host : 0.95 * device);
    limit[SL_TIER_HOST] = (size_t) (hardware->shared_cores ? 0.3 * host : 0.8 * host);
}
