/* Inside the safetensors reader: the header of a file, and a set of files. */
#ifndef SL_MODEL_SAFETENSORS_HEADER_H
#define SL_MODEL_SAFETENSORS_HEADER_H

#include "core/file.h"
#include "core/json.h"
#include "model/safetensors.h"

typedef struct sl_tensor_list {
    sl_tensor *tensors; /* the owner frees them */
    int64_t count, capacity;
    const sl_json *metadata; /* "__metadata__" of file 0; NULL: it has none */
} sl_tensor_list;

/* Appends the tensors of a file, the set's file number `file`. Names and metadata live in the region. */
sl_status sl_tensor_list_read(sl_reader *reader, const char *path, int32_t file, sl_region *region,
                              sl_tensor_list *list);

enum { SL_TENSORS_STAGING = 1 << 18, SL_TENSORS_SCALES = 1024 };

struct sl_tensors {
    sl_region *region; /* names, paths, tensors */
    sl_reader **readers;
    const char **paths;
    int32_t n_files, capacity_files;
    sl_tensor_list list; /* by name once opened */
    bool in_pairs;
    bool quantized;   /* by config.json: an 8-bit weight without a scale is damaged */
    int64_t block[2]; /* rows and columns of an 8-bit weight that may have a scale of their own */
    void *staging;
    /* Scales of `scaled` from number first_scale on, which were read last. */
    const sl_tensor *scaled;
    int64_t first_scale;
    float scales[SL_TENSORS_SCALES];
    float values_of_8_bits[3][256]; /* E4M3, E5M2, E8M0 */
};

void sl_tensors_list_values(sl_tensors *set);

#endif
