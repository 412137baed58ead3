/* Inside train: a checkpoint folder's files and the run's list of folders. */
#ifndef SL_TRAIN_CHECKPOINT_FILES_H
#define SL_TRAIN_CHECKPOINT_FILES_H

#include "train/checkpoint.h"

typedef enum sl_checkpoint_file_index {
    SL_CHECKPOINT_CONFIG,
    SL_CHECKPOINT_MODEL,
    SL_CHECKPOINT_OPTIMIZER,
    SL_CHECKPOINT_FILES
} sl_checkpoint_file_index;

typedef struct sl_checkpoint_file {
    const char *name;
    int64_t bytes;
    uint64_t hash;
} sl_checkpoint_file;

/* Weights in several files: files[SL_CHECKPOINT_MODEL] is their index then, and these are the others. */
typedef struct sl_checkpoint_shards {
    sl_region *region; /* the names'; NULL: there are none */
    sl_checkpoint_file *files;
    int64_t count;
} sl_checkpoint_shards;

/* Of a run that trains adapters, or the model itself. */
void sl_checkpoint_file_names(bool adapters, sl_checkpoint_file files[SL_CHECKPOINT_FILES]);
bool sl_checkpoint_has_adapters(const sl_program *program);
sl_status sl_checkpoint_file_hash(const char *path, void *buffer, size_t buffer_bytes, int64_t *bytes, uint64_t *hash);
/* The content of state.json. */
void sl_checkpoint_state_text(const sl_identity *identity, const sl_options *options, const sl_progress *progress,
                              const sl_checkpoint_file files[SL_CHECKPOINT_FILES], const sl_checkpoint_shards *shards,
                              sl_text *out);

/* Removes a checkpoint so that its final name disappears first. */
sl_status sl_checkpoint_remove(const char *path);
/* Removes all but the newest `keep`, counted from step `written` down. Later ones are those that a resume passed over as damaged:
 * they take no place of an intact one, and stay until the run comes to their step. What goes wrong is logged: the new checkpoint
 * is safe, disk space is not worth a run. */
void sl_checkpoint_prune(const char *out, int64_t written, int64_t keep);

#endif
