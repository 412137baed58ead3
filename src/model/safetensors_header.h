/* Inside the safetensors reader: the header of a file. */
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

#endif
