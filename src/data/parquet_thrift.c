/* Thrift's compact protocol: numbers as varints, fields by the distance from the one before. */
#include "data/parquet.h"

enum { MOST_DEPTH = 32 };

static uint64_t damaged(sl_thrift *t)
{
    t->damaged = true;
    t->at = t->end;
    return 0;
}

uint64_t sl_thrift_varint(sl_thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (t->at == t->end)
            return damaged(t);
        unsigned char byte = *t->at++;
        value |= (uint64_t) (byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return value;
    }
    return damaged(t);
}

int64_t sl_thrift_int(sl_thrift *t)
{
    uint64_t z = sl_thrift_varint(t);
    return (int64_t) (z >> 1) ^ -(int64_t) (z & 1);
}

const char *sl_thrift_binary(sl_thrift *t, size_t *length)
{
    uint64_t n = sl_thrift_varint(t);
    *length = 0;
    if (n > (uint64_t) (t->end - t->at)) {
        damaged(t);
        return "";
    }
    const char *bytes = (const char *) t->at;
    t->at += n;
    *length = (size_t) n;
    return bytes;
}

bool sl_thrift_field(sl_thrift *t, int *id, sl_thrift_type *type)
{
    if (t->at == t->end) {
        damaged(t);
        return false;
    }
    unsigned char byte = *t->at++;
    *type = (sl_thrift_type) (byte & 15);
    if (*type == SL_THRIFT_STOP)
        return false;
    int64_t next = byte >> 4 ? *id + (byte >> 4) : sl_thrift_int(t);
    *id = next > 0 && next < 1 << 15 ? (int) next : 0;
    if (*id == 0 || *type > SL_THRIFT_STRUCT)
        damaged(t);
    return !t->damaged;
}

int64_t sl_thrift_list(sl_thrift *t, sl_thrift_type *type)
{
    if (t->at == t->end)
        return (int64_t) damaged(t);
    unsigned char byte = *t->at++;
    uint64_t count = byte >> 4 == 15 ? sl_thrift_varint(t) : byte >> 4;
    *type = (sl_thrift_type) (byte & 15);
    return count <= (uint64_t) (t->end - t->at) ? (int64_t) count : (int64_t) damaged(t); /* each takes a byte */
}

static void skip(sl_thrift *t, sl_thrift_type type, int depth);

static void skip_items(sl_thrift *t, sl_thrift_type key, sl_thrift_type value, int64_t count, int depth)
{
    for (int64_t i = 0; i < count && !t->damaged; i++) {
        if (key != SL_THRIFT_STOP)
            skip(t, key, depth);
        /* in lists a truth value is a byte of its own */
        skip(t, value == SL_THRIFT_TRUE || value == SL_THRIFT_FALSE ? SL_THRIFT_BYTE : value, depth);
    }
}

static void skip_bytes(sl_thrift *t, int64_t count)
{
    if (t->end - t->at < count)
        damaged(t);
    else
        t->at += count;
}

static void skip_map(sl_thrift *t, int depth)
{
    uint64_t count = sl_thrift_varint(t);
    if (count == 0)
        return;
    if (t->at == t->end || count > (uint64_t) (t->end - t->at)) {
        damaged(t);
        return;
    }
    unsigned char types = *t->at++;
    skip_items(t, (sl_thrift_type) (types >> 4), (sl_thrift_type) (types & 15), (int64_t) count, depth);
}

static void skip_struct(sl_thrift *t, int depth)
{
    int id = 0;
    sl_thrift_type type;
    while (sl_thrift_field(t, &id, &type))
        skip(t, type, depth);
}

static void skip(sl_thrift *t, sl_thrift_type type, int depth)
{
    sl_thrift_type item;
    size_t length;
    if (depth > MOST_DEPTH) {
        damaged(t);
        return;
    }
    switch (type) {
    case SL_THRIFT_TRUE:
    case SL_THRIFT_FALSE:
        return;
    case SL_THRIFT_BYTE:
        skip_bytes(t, 1);
        return;
    case SL_THRIFT_I16:
    case SL_THRIFT_I32:
    case SL_THRIFT_I64:
        sl_thrift_varint(t);
        return;
    case SL_THRIFT_DOUBLE:
        skip_bytes(t, 8);
        return;
    case SL_THRIFT_BINARY:
        sl_thrift_binary(t, &length);
        return;
    case SL_THRIFT_LIST:
    case SL_THRIFT_SET: {
        int64_t count = sl_thrift_list(t, &item);
        skip_items(t, SL_THRIFT_STOP, item, count, depth + 1);
        return;
    }
    case SL_THRIFT_MAP:
        skip_map(t, depth + 1);
        return;
    case SL_THRIFT_STRUCT:
        skip_struct(t, depth + 1);
        return;
    default:
        damaged(t);
    }
}

void sl_thrift_skip(sl_thrift *t, sl_thrift_type type)
{
    skip(t, type, 0);
}
