/*
 * A job: the options of `sluice train` and `sluice plan` (one table for both), and what they resolve to: a model, a program
 * configuration, budgets, a schedule. Resolving reads the model's config.json, nothing else; data, device and plan come later.
 */
#ifndef SL_TRAIN_JOB_H
#define SL_TRAIN_JOB_H

#include "core/options.h"
#include "data/source.h"
#include "data/tokenized.h"
#include "device/device.h"
#include "model/model.h"
#include "program/program.h"
#include "train/schedule.h"

/* The table behind --help, the config file, SLUICE_* variables and sl_job_set. */
const sl_option *sl_job_table(int64_t *count);

/* What a program that embeds Sluice gives beside options. Copied with the job. */
typedef struct sl_hooks {
    sl_progress_fn progress; /* NULL: nobody listens */
    void *progress_user;
    sl_data data;           /* read NULL: the files of --data; `identity` is unused, its text is */
    char data_identity[48]; /* here */
    sl_model model;         /* family NULL: --model */
    sl_source *source;      /* in place of both, which outlives the run; NULL: none */
    bool forward_only;      /* the step computes losses alone: evaluation (evaluate.c) */
} sl_hooks;

void sl_hooks_progress(const sl_hooks *hooks, sl_stage stage, double fraction);

struct sl_job {
    sl_options *options;
    sl_hooks hooks;
};

/* For the command line: environment, then --config FILE, then the arguments, each overriding the one before.
 * argv holds the arguments after the command's name. */
sl_status sl_job_parse(sl_job *job, int argc, char **argv);

typedef enum sl_on_nan { SL_ON_NAN_STOP, SL_ON_NAN_SKIP } sl_on_nan;

/* A job made definite. Strings point into the job, which outlives it. */
typedef struct sl_setup {
    sl_model model;
    sl_program_config program; /* chunks_per_round 0: the planner chooses */
    sl_schedule schedule;
    char device[32]; /* the class's name: "auto" is resolved */
    int threads;     /* 0: one per core */
    uint64_t seed;
    int64_t steps;
    size_t budget[SL_TIER_COUNT]; /* SIZE_MAX: not limited */
    double share[SL_TIER_COUNT];  /* of what the job takes without budgets, found when it is planned; 0: in bytes */
    bool limited[SL_TIER_COUNT];  /* somebody said so; else the machine's memory is the limit */
    bool fixed_workspace;         /* by --workspace-mem; else by the device's budget */
    double clip;
    sl_on_nan on_nan;
    bool mask_documents;
    const char *data, *val_data; /* NULL when not given */
    sl_data_format data_format;
    sl_tokenize_config tokenize; /* how text and records become tokens, but for the path that follows */
    char tokenizer[1100];        /* a folder or file; "": they are bytes */
    double val_share;            /* of the sequences held out when validating without val_data */
    int64_t val_every, val_steps;
    int64_t sample_every, sample_tokens;
    const char *sample_prompt;
    int64_t max_documents;  /* kept apart per sequence; 1 without mask_documents */
    int64_t document_token; /* -1: what the data's format says */
    const char *out;        /* run folder; NULL: nothing is written */
    bool resume;
    int64_t checkpoint_every, keep;
    int64_t shard_bytes;   /* of weights in a file; 0: SL_SHARD_BYTES */
    const char *init_from; /* Hugging Face folder or safetensors file; NULL: those of the model's folder, or random */
    const char *init_adapter; /* folder of an adapter to begin with; NULL: a new one, if there is any */
    uint32_t companions;      /* files beside the model or the weights: see companions.h */
    bool from_scratch;        /* random, whatever the model's folder holds */
    char model_folder[1024];  /* of its config.json; "": a preset, or a file of another name */
    const char *hardware;     /* profile to plan for; NULL: the device's own */
    bool measured;            /* costs: measured here, or from the roofline of the profile */
    size_t data_bytes;        /* of the heap, for the names of the data's files; 0: they are not known */
    sl_hooks hooks;
    /* Of the second, forward-only program where it is no validation of the step (generation: a chunk of a prompt); seqlen 0: it is. */
    sl_chunking beside;
    size_t beside_bytes; /* of device memory that only this program may take, beyond the budget */
    const char *smaller; /* what makes the job smaller, for messages: its options; NULL: those of training */
    bool runs;           /* the plan will run on `device`, so workspaces are what its kernels need */
} sl_setup;

sl_status sl_setup_resolve(const sl_job *job, sl_setup *setup);
/* Steps of at most so many sequences, where there are no more. */
void sl_setup_shorten(sl_setup *setup, int64_t sequences);

/* ---- within the job's own files ---- */

/* The formats of data, and what makes tokens of it. */
void sl_job_resolve_data(const sl_options *o, sl_setup *setup);
sl_status sl_job_between(const sl_options *o, const char *name, double low, double high);
/* Choices and help of --optimizer. */
void sl_job_describe_optimizers(sl_option *option);
/* Appends the optimizers' own options to a table of `count`, and returns how many there are then. */
int64_t sl_job_list_optimizer_options(sl_option *table, int64_t count);
sl_status sl_job_resolve_optimizers(const sl_options *o, sl_program_config *config);
/* Appends the options of adapters, and returns how many there are then. */
enum { SL_LORA_OPTIONS = 6 };
int64_t sl_job_list_lora_options(sl_option *table, int64_t count);
/* Likewise, of samples. */
enum { SL_SAMPLE_OPTIONS = 3 };
int64_t sl_job_list_sample_options(sl_option *table, int64_t count);
sl_status sl_job_resolve_samples(const sl_options *o, sl_setup *setup);
/* setup->model is there already. */
sl_status sl_job_resolve_lora(const sl_options *o, sl_setup *setup);

#endif
