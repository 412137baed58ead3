#include "infer/options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "train/checkpoint.h"

static const sl_option *find(const char *name)
{
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    for (int64_t i = 0; i < count; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

void sl_infer_take(sl_option *table, int64_t *count, const char *name, const char *group, const char *help)
{
    const sl_option *from = find(name);
    SL_ASSERT(from && *count < SL_INFER_OPTIONS);
    sl_option *to = &table[(*count)++];
    *to = *from;
    to->group = group ? group : to->group;
    to->help = help ? help : to->help;
}

void sl_infer_take_machine(sl_option *table, int64_t *count)
{
    static const char *const names[] = {"device",        "precision", "device-mem", "host-mem",
                                        "workspace-mem", "threads",   "costs"};
    for (int64_t i = 0; i < SL_COUNT(names); i++)
        sl_infer_take(table, count, names[i], "Machine and memory",
                      strcmp(names[i], "precision") == 0
                          ? "f32: arithmetic in 32 bits. bf16 and bf16-master: in bf16, which halves the weights. "
                            "Default: f32 on the cpu, bf16 elsewhere."
                          : NULL);
    sl_infer_take(table, count, "config", NULL, NULL);
    sl_infer_take(table, count, "json", NULL, NULL);
    sl_infer_take(table, count, "quiet", NULL, NULL);
    sl_infer_take(table, count, "verbose", NULL, NULL);
}

/* --model: as it is, or the newest checkpoint of a run. */
static sl_status set_model(const char *model, sl_job *job)
{
    char path[1200];
    int64_t step = -1;
    if (!sl_dir_exists(model) || strlen(model) > 1000)
        return sl_job_set(job, "model", model);
    snprintf(path, sizeof path, "%s/config.json", model);
    if (!sl_file_exists(path))
        SL_TRY(sl_checkpoint_newest(model, &step));
    snprintf(path, sizeof path, "%s/checkpoints/step-%08" PRId64, model, step);
    return sl_job_set(job, "model", step < 0 ? model : path);
}

sl_status sl_infer_job(const sl_options *options, sl_job **out)
{
    sl_job *job = NULL;
    sl_status status = SL_OK;
    int64_t count;
    const sl_option *table = sl_job_table(&count);
    SL_TRY(sl_job_create(&job));
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        const char *name = table[i].name, *value, *known;
        if (sl_options_get(options, name, &known) != SL_OK || strcmp(name, "config") == 0 ||
            !sl_options_is_set(options, name))
            continue;
        value = sl_options_string(options, name);
        status = strcmp(name, "model") == 0 ? set_model(value, job) : sl_job_set(job, name, value);
    }
    if (status == SL_OK)
        *out = job;
    else
        sl_job_destroy(job);
    return status;
}
