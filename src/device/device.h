/*
 * The device contract, on one screen. A device offers memory in tiers (one arena each), four streams, events, asynchronous
 * copies between tiers, op launches, and a description of itself. Everything above this line of the code base is the same for
 * every device.
 *
 * Rules:
 *  - Commands of one stream run in order; commands of different streams are ordered by events alone.
 *  - Memory handed to a stream may be reused only behind an event recorded after its last use.
 *  - Between step_begin and step_end nothing allocates and nothing waits for the host; step_end waits for all streams.
 *  - A launch, copy or event belongs to the step that issued it. Events are numbered by the caller, [0, max_events), and each is
 *    recorded at most once per step; a wait is issued after its record.
 */
#ifndef SL_DEVICE_DEVICE_H
#define SL_DEVICE_DEVICE_H

#include "core/pages.h"
#include "ops/op.h"
#include "tensor/policy.h"

/* Nearest to the compute first. Code loops over tiers; nothing may assume that there are exactly two. */
typedef enum sl_tier { SL_TIER_DEVICE, SL_TIER_HOST, SL_TIER_COUNT } sl_tier;
const char *sl_tier_name(sl_tier tier); /* device, host */

/* COMPUTE runs ops on device memory; HOST runs ops on host memory beside it (the optimizer); IN and OUT carry copies towards and away
 * from the device: see sl_streams. */
typedef enum sl_stream { SL_STREAM_COMPUTE, SL_STREAM_IN, SL_STREAM_OUT, SL_STREAM_HOST, SL_STREAM_COUNT } sl_stream;

/* The ways that bytes go from tier to tier. */
typedef enum sl_link { SL_LINK_IN, SL_LINK_OUT, SL_LINK_COUNT } sl_link;

/* What a stream does: it runs ops on the memory of a tier, then `from` and `to` are this tier, or it carries a link's copies. Who plans,
 * runs or reports looks streams and links up here: a further tier is a row for what computes there and two for its links. */
typedef struct sl_stream_def {
    const char *name; /* compute, in, out, host */
    sl_tier from, to;
    sl_link link; /* SL_LINK_COUNT: it runs ops */
} sl_stream_def;
extern const sl_stream_def sl_streams[SL_STREAM_COUNT];

typedef struct sl_link_def {
    sl_tier from, to;
    sl_stream stream;
    sl_link opposite; /* shares the wire: each is slower while the other is busy */
} sl_link_def;
extern const sl_link_def sl_links[SL_LINK_COUNT];

static inline bool sl_stream_copies(sl_stream stream)
{
    return sl_streams[stream].link != SL_LINK_COUNT;
}
/* The stream that runs ops on a tier's memory; SL_STREAM_COUNT: none does. */
sl_stream sl_stream_on(sl_tier tier);
/* SL_LINK_COUNT: there is none. */
sl_link sl_link_between(sl_tier from, sl_tier to);

#define SL_ALIGN 256 /* of every address in every arena */

/* When a command really ran, in seconds since step_begin; filled by the time step_end returns. A device that is to replay a list may fill
 * them in the list's first steps alone and leave them as they are later. */
typedef struct sl_span {
    double start, end;
} sl_span;

/* The nested scopes in which a profiler shows a step. */
typedef enum sl_scope { SL_SCOPE_STEP, SL_SCOPE_ROUND, SL_SCOPE_LAYER, SL_SCOPE_CHUNK, SL_SCOPE_OP } sl_scope;

typedef struct sl_device_config {
    size_t arena_bytes[SL_TIER_COUNT]; /* exactly these are mapped; 0: no memory in this tier */
    int threads;                       /* CPU threads for kernels; 0 = one per core */
    int64_t max_commands;              /* commands per stream and step, waits and records included */
    int64_t max_events;
    uint64_t seed;         /* sim: which of the allowed orders to run */
    sl_pages_ahead *ahead; /* where a device that pins its host arena takes it from; NULL: from the system */
} sl_device_config;

/* What the planner needs to know of a machine. Rates in units/s, sizes in bytes. Also the file format of --hw FILE. */
typedef struct sl_hardware {
    char name[64];
    size_t memory_bytes[SL_TIER_COUNT];
    double peak_flops[SL_DTYPE_COUNT];        /* dense matrix multiply, by input dtype; what MFU is measured against */
    double matmul_efficiency[SL_DTYPE_COUNT]; /* sustained share of peak for large matmuls, by input dtype */
    double attention_efficiency[SL_DTYPE_COUNT][2]; /* forward, backward */
    double memory_bandwidth[SL_TIER_COUNT];         /* read + write, sustained */
    double link_bandwidth[SL_LINK_COUNT];           /* alone */
    double link_bandwidth_both;                     /* each way while both are busy */
    double link_latency_s, launch_latency_s;
    double host_optimizer_bandwidth; /* bytes of state the host updates per second */
    bool shared_cores;               /* copies and host ops take time from compute (the CPU device) */
    bool attention_keeps_scores; /* its backward in bf16 writes a value per query and key (cuDNN's deterministic one) */
} sl_hardware;

typedef struct sl_device sl_device;
typedef struct sl_device_class {
    const char *name;     /* of its row in devices.def */
    const char *describe; /* one line for people */
    bool pins_host;       /* opening touches the whole host arena, which may take seconds: see config.ahead */
    sl_status (*open)(const sl_device_config *config, sl_device **device);
    void (*close)(sl_device *device);
    void *(*arena)(sl_device *device, sl_tier tier); /* base address */
    /* Bytes of workspace this launch needs, from the arena of the stream's tier (operands' types and attrs are set,
     * data not); at most launch->workspace_bytes (0: no limit), unless its kernel cannot do with that. May depend on
     * `threads`. */
    size_t (*workspace)(sl_device *device, const sl_launch *launch, sl_stream stream);
    /* SL_OK, or SL_E_UNSUPPORTED and why. */
    sl_status (*supports)(sl_device *device, const sl_launch *launch);
    /* Optional (NULL: not offered). A device that can record a list of commands once and run it again gets this call
     * first, with a number that no other list has: *started true means it runs already and only step_end remains;
     * otherwise the caller goes on with step_begin and issues the commands, which the device may record for the next
     * time. */
    sl_status (*replay)(sl_device *device, uint64_t list, bool *started);
    sl_status (*step_begin)(sl_device *device);
    /* *launch outlives the step. The message of what fails names the op and the call; a GPU's its shapes too. */
    sl_status (*launch)(sl_device *device, sl_stream stream, const sl_launch *launch, sl_span *span);
    sl_status (*copy)(sl_device *device, sl_stream stream, void *to, const void *from, size_t bytes, sl_span *span);
    sl_status (*record)(sl_device *device, sl_stream stream, int64_t event);
    sl_status (*wait)(sl_device *device, sl_stream stream, int64_t event);
    sl_status (*step_end)(sl_device *device); /* waits; reports the first error, as exactly as the device can tell */
    /* Optional (NULL: no profiler). Opens a scope inside those that are open, all of outer levels (levels may be left out), or
     * closes the innermost, which is of that level (`name` NULL). False when a step's scope is opened: no profiler is
     * attached, so the caller leaves out all others until the next step. */
    bool (*scope)(sl_device *device, sl_scope level, const char *name);
    /* Outside steps: host program's memory to and from any tier, synchronous, from any thread (initialisation, checkpoints,
     * data). `from` NULL writes zeros. */
    sl_status (*write)(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes);
    sl_status (*read)(sl_device *device, sl_tier tier, void *to, const void *from, size_t bytes);
    /* The machine's profile as far as the device can tell without measuring. */
    void (*hardware)(sl_device *device, sl_hardware *hardware);
    /* Optional (NULL: none). Device memory that the device's own runtime takes beside the arena (a CUDA context); reported apart. */
    size_t (*overhead)(sl_device *device);
    /* Optional (NULL: nothing to remember). Called before `open`: library algorithms that are picked by measuring fix bits, so they are
     * taken from the run's file first, then from the machine's cache, and what is picked anew goes into both. Paths may be NULL. */
    void (*remember)(const char *run_file, const char *cache_file);
    /* Which kernels and library versions fix the bits: recorded with a run ("cpu avx512"). */
    const char *(*numerics)(sl_device *device);
} sl_device_class;

struct sl_device {
    const sl_device_class *class;
};

/* What is known of a device without opening it, and even where it is not: enough to plan for it elsewhere. All fields are required unless
 * they say otherwise. */
typedef struct sl_device_def {
    const char *name;             /* as --device takes it */
    const char *title;            /* as messages call it */
    const sl_device_class *class; /* NULL: in the plugin libsluice_<name>.so */
    /* Of a plugin. Can its accelerator be here? Loading a vendor's libraries takes time and memory, so they are loaded only where this
     * says yes or the user names the device. `absent` says in one sentence that it cannot. */
    bool (*present)(void);
    const char *absent;
    bool computes;          /* false: there to plan for and to test with */
    bool shared_cores;      /* of the hardware profiles that stand for it: see sl_hardware */
    int64_t chunk_tokens;   /* that a launch works on by default */
    int64_t most_pairs;     /* of query and key in a chunk; longer sequences get smaller chunks. 0: not limited */
    sl_precision precision; /* the default */
    /* Bytes of workspace that the launch would want there; as sl_device_class.workspace otherwise. */
    size_t (*estimate_workspace)(const sl_hardware *hardware, const sl_launch *launch, sl_stream stream);
} sl_device_def;

enum {
#define SL_DEVICE(name) SL_DEVICE_ROW_##name,
#include "device/devices.def"
#undef SL_DEVICE
    SL_DEVICE_CLASSES
};
/* By row of devices.def. */
const sl_device_def *sl_device_def_at(int64_t row);
/* By name, whether or not the device is here; NULL: no device has that name. */
const sl_device_def *sl_device_def_find(const char *name);
/* The device that a hardware profile stands for. */
const sl_device_def *sl_device_def_for(const sl_hardware *hardware);
/* Tokens that a launch works on by default: enough for kernels to run at full speed, few enough that the activations
 * of a chunk are a small part of any budget. They fix the bits, so they follow from the device and the sequence length
 * alone. */
int64_t sl_device_chunk_target(const sl_device_def *def, int64_t seqlen);
/* Is that a device's name, or "auto", whether or not the device is here? */
sl_status sl_device_check_name(const char *name);
/* By name; "auto" is the best one present. The message says what is missing and why. */
sl_status sl_device_find(const char *name, const sl_device_class **class);
/* By row of devices.def; NULL where a plugin is not here. No plugin is loaded for an accelerator that is not here. */
void sl_device_classes(const sl_device_class *classes[SL_DEVICE_CLASSES]);
sl_status sl_device_open(const char *name, const sl_device_config *config, sl_device **device);
void sl_device_close(sl_device *device); /* NULL is fine */
/* "matmul bf16[8192,4096] bf16[4096,4096] -> bf16[8192,4096]": for messages. */
const char *sl_launch_describe(const sl_launch *launch, char out[320]);

/* Built-in profiles (h200, h100, a100, rtx5090, rtx4090, rtx3090) by name, a JSON file by path, or "this" for the machine we are on. */
sl_status sl_hardware_find(const char *name_or_path, sl_hardware *hardware);
const char *const *sl_hardware_names(int64_t *count);
/* How much of each tier a job may take that was given no budgets. On shared cores both come out of one memory; a GPU's context takes
 * a little of its own. */
void sl_hardware_limits(const sl_hardware *hardware, size_t limit[SL_TIER_COUNT]);
/* The file format, a flat JSON object with one key per figure, all required; or what `sluice system --json` printed, which holds
 * one as "profile". `path` is for messages. */
sl_status sl_hardware_parse(const char *path, const char *text, size_t length, sl_hardware *hardware);
sl_status sl_hardware_write(const sl_hardware *hardware, const char *path);
struct sl_json_writer;
void sl_hardware_put(const sl_hardware *hardware, struct sl_json_writer *w); /* its members, into an open object */

#endif
