/* The options about data: what the files hold, and what makes tokens of them. */
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "train/job.h"

/* A model's folder usually has the tokenizer that it was trained with. */
static void find_tokenizer(const sl_options *o, sl_setup *setup)
{
    const char *given = sl_options_string(o, "tokenizer");
    char path[1100];
    setup->tokenizer[0] = 0;
    snprintf(path, sizeof path, "%s/tokenizer.json", setup->model_folder);
    if (given)
        snprintf(setup->tokenizer, sizeof setup->tokenizer, "%s", given);
    else if (setup->model_folder[0] && setup->data_format != SL_DATA_BYTES && sl_file_exists(path))
        snprintf(setup->tokenizer, sizeof setup->tokenizer, "%s", setup->model_folder);
}

static sl_train_on train_on(const sl_options *o)
{
    const char *what = sl_options_string(o, "train-on");
    return strcmp(what, "all") == 0          ? SL_TRAIN_ON_ALL
           : strcmp(what, "completion") == 0 ? SL_TRAIN_ON_COMPLETION
                                             : SL_TRAIN_ON_ASSISTANT;
}

void sl_job_resolve_data(const sl_options *o, sl_setup *setup)
{
    const char *format = sl_options_string(o, "data-format");
    setup->data = sl_options_string(o, "data");
    setup->val_data = sl_options_string(o, "val-data");
    setup->val_every = sl_options_i64(o, "val-every");
    setup->val_steps = sl_options_i64(o, "val-steps");
    setup->val_share = setup->val_every && !setup->val_data ? sl_options_f64(o, "val-share") : 0;
    if (format)
        sl_data_format_find(format, &setup->data_format); /* else AUTO: the option's own check let it through */
    find_tokenizer(o, setup);
    setup->tokenize = (sl_tokenize_config){.cache = sl_options_string(o, "cache"),
                                           .field = sl_options_string(o, "data-field"),
                                           .train_on = train_on(o),
                                           .threads = setup->threads};
}
