/* What a program that embeds Sluice adds to a job beside options, and what it can ask about options. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/sized.h"
#include "train/job.h"

/* ---- progress ---- */

const char *sl_stage_name(sl_stage stage)
{
    switch (stage) {
#define X(name, text)     \
    case SL_STAGE_##name: \
        return text;
        SL_STAGE_LIST(X)
#undef X
    }
    return "unknown stage";
}

void sl_hooks_progress(const sl_hooks *hooks, sl_stage stage, double fraction)
{
    if (hooks->progress)
        hooks->progress(hooks->progress_user, stage, fraction);
}

sl_status sl_job_set_progress(sl_job *job, sl_progress_fn fn, void *user)
{
    job->hooks.progress = fn;
    job->hooks.progress_user = user;
    return SL_OK;
}

/* ---- model and data ---- */

sl_status sl_job_set_model(sl_job *job, const sl_model_def *def)
{
    sl_model model = {0};
    if (def)
        SL_TRY(sl_model_of(def, &model));
    job->hooks.model = model;
    return SL_OK;
}

sl_status sl_job_set_data(sl_job *job, const sl_data *caller)
{
    const int64_t most = INT64_C(1) << 48;
    sl_data data = {0};
    if (caller) {
        SL_TRY(sl_sized_get(&data, caller, sizeof data, "sl_data"));
        if (!data.read || !data.identity || !data.identity[0])
            return sl_fail(SL_E_USAGE, "sl_data needs %s",
                           data.read ? "an identity: a text that tells it from other "
                                       "data"
                                     : "a callback, `read`");
        if (strlen(data.identity) >= sizeof job->hooks.data_identity)
            return sl_fail(SL_E_USAGE, "the identity of sl_data has %zu bytes: use at most %zu", strlen(data.identity),
                           sizeof job->hooks.data_identity - 1);
        if (data.sequences < 1 || data.sequences > most || data.val_sequences < 0 || data.val_sequences > most)
            return sl_fail(SL_E_USAGE,
                           "sl_data has %" PRId64 " sequences and %" PRId64 " for validation: give 1 to 2^48 and 0 to "
                           "2^48",
                           data.sequences, data.val_sequences);
        snprintf(job->hooks.data_identity, sizeof job->hooks.data_identity, "%s", data.identity);
    }
    job->hooks.data = data;
    return SL_OK;
}

/* ---- options ---- */

sl_status sl_job_get(const sl_job *job, const char *key, const char **value)
{
    if (!key || !value)
        return sl_fail(SL_E_USAGE, "%s is NULL", key ? "where to put the value" : "the key of an option");
    return sl_options_get(job->options, key, value);
}

int64_t sl_option_count(void)
{
    int64_t count;
    sl_job_table(&count);
    return count;
}

sl_status sl_option_get(int64_t index, sl_option_info *out)
{
    static const sl_option_type types[] = {
        [SL_OPT_STRING] = SL_OPTION_STRING, [SL_OPT_I64] = SL_OPTION_INTEGER,   [SL_OPT_F64] = SL_OPTION_NUMBER,
        [SL_OPT_BYTES] = SL_OPTION_BYTES,   [SL_OPT_BUDGET] = SL_OPTION_BUDGET, [SL_OPT_FLAG] = SL_OPTION_FLAG,
        [SL_OPT_CHOICE] = SL_OPTION_CHOICE,
    };
    int64_t count;
    const sl_option *table = sl_job_table(&count), *o = table + index;
    if (index < 0 || index >= count)
        return sl_fail(SL_E_USAGE, "there is no option %" PRId64 ": there are %" PRId64 ", the first is 0", index,
                       count);
    sl_option_info info = {.name = o->name,
                           .type = types[o->kind],
                           .values = o->value,
                           .default_value = o->otherwise,
                           .group = o->group,
                           .help = o->help};
    return sl_sized_put(out, &info, sizeof info, "sl_option_info");
}
