/*
 * Tensors in files: the safetensors format (8 bytes of length, a JSON header, raw little-endian data), one file or many
 * behind a model.safetensors.index.json. Reading and writing stream through small buffers, so that a parameter much larger
 * than the memory available can pass; nothing here ever holds a whole tensor.
 *
 * Reading is strict: every size, offset, overlap and shape is checked before the first byte of data is trusted, and the
 * message names file and tensor. Gaps between tensors, unknown dtypes and names twice are refused, as the format demands.
 *
 * The second half moves parameters: an sl_param knows its parts' Hugging Face names, rows and transposition; the caller
 * gives a buffer and a function that reads or writes bytes of the parameter wherever it lives (a tier's arena).
 */
#ifndef SL_MODEL_SAFETENSORS_H
#define SL_MODEL_SAFETENSORS_H

#include "core/text.h"
#include "graph/graph.h"

typedef enum sl_file_dtype {
#define SL_FILE_DTYPES(X) \
    X(F64, 8)             \
    X(F32, 4)             \
    X(F16, 2)             \
    X(BF16, 2)            \
    X(I64, 8)             \
    X(I32, 4)             \
    X(I16, 2)             \
    X(I8, 1)              \
    X(U64, 8)             \
    X(U32, 4)             \
    X(U16, 2)             \
    X(U8, 1)              \
    X(BOOL, 1)            \
    X(F8_E4M3, 1)         \
    X(F8_E5M2, 1)         \
    X(F8_E8M0, 1)
#define X(name, bytes) SL_FILE_##name,
    SL_FILE_DTYPES(X)
#undef X
        SL_FILE_DTYPE_COUNT
} sl_file_dtype;
const char *sl_file_dtype_name(sl_file_dtype dtype);
size_t sl_file_dtype_bytes(sl_file_dtype dtype);
sl_file_dtype sl_file_dtype_of(sl_dtype dtype);
const char *sl_file_dtype_config_name(
    sl_file_dtype dtype); /* in config.json: "bfloat16"; NULL: weights do not have it */

#define SL_FILE_MAX_RANK 8

typedef struct sl_tensor {
    const char *name;
    sl_file_dtype dtype;
    int32_t rank;
    int64_t dim[SL_FILE_MAX_RANK];
    int64_t count;  /* elements */
    int64_t offset; /* of its first byte in the file */
    int64_t bytes;
    int32_t file; /* index among the set's files */
    /* Of 8-bit weights: the tensor that holds a factor for every block of so many rows and columns. NULL: there is none. */
    const struct sl_tensor *scale;
    int64_t block[2];
} sl_tensor;

/* ---- reading ---- */

typedef struct sl_tensors sl_tensors;

/* `path`: a .safetensors file, an index (.json), or a folder with model.safetensors or model.safetensors.index.json.
 * The index may only name files beside itself. */
sl_status sl_tensors_open(const char *path, sl_tensors **tensors);
void sl_tensors_close(sl_tensors *tensors);
int64_t sl_tensors_count(const sl_tensors *tensors);
const sl_tensor *sl_tensors_at(const sl_tensors *tensors, int64_t index);      /* in order of name */
const sl_tensor *sl_tensors_find(const sl_tensors *tensors, const char *name); /* NULL when absent */
const char *sl_tensors_metadata(const sl_tensors *tensors,
                                const char *key); /* "__metadata__" of the first file; NULL when absent */
const char *sl_tensors_file(const sl_tensors *tensors, const sl_tensor *tensor); /* its path, for messages */
/* q and k lie in pairs (see sl_param_part), not in Hugging Face's halves: files of Sluice up to 0.1.0 whose config.json, beside
 * them, has "rope_interleaved": true. */
bool sl_tensors_in_pairs(const sl_tensors *tensors);

/* Bytes as they stand, [offset, offset+length) of the tensor. */
sl_status sl_tensors_read_raw(sl_tensors *tensors, const sl_tensor *tensor, int64_t offset, void *out, size_t length);
/* Elements [first, first+count), converted to `dtype`: f32 or bf16 from any floating-point type but F64, times their scales; I32
 * to I32. */
sl_status sl_tensors_read(sl_tensors *tensors, const sl_tensor *tensor, int64_t first, int64_t count, sl_dtype dtype,
                          void *out);
/* The tensor is [columns, rows] in the file; gives rows [first, first+count) of its transpose [rows, columns], converted. */
sl_status sl_tensors_read_transposed(sl_tensors *tensors, const sl_tensor *tensor, int64_t first, int64_t count,
                                     sl_dtype dtype, void *out);

/* ---- writing: metadata and declarations first, then the data of all tensors in the order declared ---- */

typedef struct sl_tensors_writer sl_tensors_writer;
sl_status sl_tensors_writer_open(const char *path, sl_tensors_writer **writer);
/* Before the first byte: data above so many bytes goes to several files and an index, as Hugging Face does it. 0: never. */
void sl_tensors_writer_split(sl_tensors_writer *writer, int64_t most_bytes);
sl_status sl_tensors_writer_metadata(sl_tensors_writer *writer, const char *key, const char *value);
sl_status sl_tensors_writer_declare(sl_tensors_writer *writer, const char *name, sl_file_dtype dtype, int32_t rank,
                                    const int64_t *dim);
/* Any number of bytes at a time; the first call writes the header. */
sl_status sl_tensors_writer_write(sl_tensors_writer *writer, const void *bytes, size_t length);
/* Refuses when bytes are missing. fsync and rename as sl_writer_commit. `checksum` (may be NULL): sl_hash64 of the file, or of the
 * index. */
sl_status sl_tensors_writer_commit(sl_tensors_writer *writer, uint64_t *checksum);
/* Once committed: what to open, the file itself or an index, and then the files that an index names. They belong to the writer. */
typedef struct sl_written_file {
    const char *name; /* without a folder */
    int64_t bytes;
    uint64_t checksum; /* sl_hash64 */
} sl_written_file;
int64_t sl_tensors_writer_files(const sl_tensors_writer *writer, const sl_written_file **files);
void sl_tensors_writer_destroy(sl_tensors_writer *writer); /* an uncommitted file leaves nothing behind */

/* ---- parameters ---- */

/* Reads or writes bytes [offset, offset+length) of one parameter (a flat array in row-major order), wherever it lives. */
typedef sl_status (*sl_param_io)(void *context, size_t offset, void *bytes, size_t length);
/* Enough for every call below; larger buffers only save calls. */
#define SL_PARAM_BUFFER_BYTES (1u << 20)

/* All parts of `param` are in the set with the right shapes, or a message that names what is missing or differs. A leading
 * "transformer." or "model." of a name may be missing in the file. */
sl_status sl_param_check(const sl_tensors *tensors, const sl_param *param);
/* The tensor of the set that holds part number `part`; NULL: there is none. */
const sl_tensor *sl_param_tensor(const sl_tensors *tensors, const sl_param *param, int part);
/* From the file, as `dtype`, through `buffer` into write(). A value that is not finite, or becomes infinite in `dtype`, is an error
 * that names file, tensor and element: SL_E_NOT_FINITE. */
sl_status sl_param_load(sl_tensors *tensors, const sl_param *param, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                        sl_param_io write, void *context);
/* Declares all parts, then (after every declaration of the file, in the same order) writes them. `dtype` is what read() gives
 * and what the file holds. `prefix` (may be "") goes before the names: "moment1." and the like. */
sl_status sl_param_declare(sl_tensors_writer *writer, const char *prefix, const sl_param *param, sl_dtype dtype);
sl_status sl_param_save(sl_tensors_writer *writer, const sl_param *param, sl_dtype dtype, void *buffer,
                        size_t buffer_bytes, sl_param_io read, void *context);
/* As sl_param_load, of what sl_param_declare/save wrote under `prefix`, whatever the values. */
sl_status sl_param_load_prefixed(sl_tensors *tensors, const char *prefix, const sl_param *param, sl_dtype dtype,
                                 void *buffer, size_t buffer_bytes, sl_param_io write, void *context);
/* A part of a parameter in memory, as a file would have it: dense, row-major, of dtype `as`. `dtype` is the store's. Writing refuses values
 * that are not finite, or not in `dtype` (SL_E_NOT_FINITE), before anything is written. */
sl_status sl_param_read_part(const sl_param *param, int part, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                             sl_param_io read, void *context, sl_dtype as, void *values);
sl_status sl_param_write_part(const sl_param *param, int part, sl_dtype dtype, void *buffer, size_t buffer_bytes,
                              sl_param_io write, void *context, sl_dtype as, const void *values);
/* Tensors of the set that none of the parameters takes and that are no known buffers (causal masks, rotary tables, a copy of
 * tied weights): SL_E_FORMAT naming the first, since a weight that is silently left out changes the model. */
sl_status sl_params_check_unused(const sl_tensors *tensors, const sl_param *params, int32_t n_params);
/* All that none of the parameters takes: their names, and how many. */
sl_status sl_params_left_out(const sl_tensors *tensors, const sl_param *params, int32_t n_params, sl_text *names,
                             int64_t *count);

#endif
