/* How parquet encodes numbers: runs (levels, dictionary indices) and deltas (lengths of strings). Read one by one, nothing is stored. */
#include "data/parquet.h"

/* `width` bits, at most 64, from bit `at` of the bytes; the caller knows that they are there. */
static uint64_t bits_at(const unsigned char *bytes, uint64_t at, int width)
{
    uint64_t value = 0;
    for (int got = 0; got < width;) {
        int offset = (int) ((at + (uint64_t) got) & 7), take = SL_MIN(8 - offset, width - got);
        uint64_t part = (uint64_t) (bytes[(at + (uint64_t) got) >> 3] >> offset) & ((1u << take) - 1);
        value |= part << got;
        got += take;
    }
    return value;
}

/* ---- runs ---- */

void sl_parquet_runs_begin(sl_parquet_runs *r, const unsigned char *at, const unsigned char *end, int width)
{
    *r = (sl_parquet_runs){.at = at, .end = end, .width = width};
}

static bool begin_run(sl_parquet_runs *r)
{
    sl_thrift t = {r->at, r->end, false};
    uint64_t header = sl_thrift_varint(&t), count = header >> 1;
    uint64_t bytes = header & 1 ? count * (uint64_t) r->width : (uint64_t) (r->width + 7) / 8;
    uint64_t there = (uint64_t) (t.end - t.at);
    if (t.damaged || count == 0 || count > UINT32_MAX)
        return false;
    r->packed = header & 1;
    r->left = r->packed ? 8 * count : count;
    if (r->packed && bytes > there && r->width) { /* writers leave out the end of the last group */
        bytes = there;
        r->left = 8 * there / (uint64_t) r->width;
    }
    if (bytes > there || r->left == 0)
        return false;
    r->packed_at = t.at;
    r->bit = 0;
    r->value = 0;
    for (uint64_t i = 0; !r->packed && i < bytes; i++)
        r->value |= (uint32_t) t.at[i] << 8 * i;
    r->at = t.at + bytes;
    return true;
}

bool sl_parquet_runs_next(sl_parquet_runs *r, uint32_t *value)
{
    if (r->left == 0 && !begin_run(r))
        return false;
    r->left--;
    *value = r->value;
    if (r->packed) {
        *value = (uint32_t) bits_at(r->packed_at, r->bit, r->width);
        r->bit += (uint64_t) r->width;
    }
    return true;
}

/* ---- deltas ---- */

bool sl_parquet_deltas_begin(sl_parquet_deltas *d, const unsigned char *at, const unsigned char *end)
{
    sl_thrift t = {at, end, false};
    *d = (sl_parquet_deltas){.end = end};
    d->block = sl_thrift_varint(&t);
    d->minis = sl_thrift_varint(&t);
    d->count = sl_thrift_varint(&t);
    d->value = sl_thrift_int(&t);
    d->at = t.at;
    d->in_block = d->block; /* none has begun */
    return !t.damaged && d->block > 0 && d->block <= 1 << 20 && d->minis > 0 && d->block % d->minis == 0 &&
           d->count <= UINT32_MAX;
}

/* The parts of a block lie one behind the other, each with its own width; those without a number that counts may be left out. */
static bool begin_block(sl_parquet_deltas *d)
{
    sl_thrift t = {d->at, d->end, false};
    d->least = sl_thrift_int(&t);
    d->in_block = 0;
    d->bit = 0;
    d->widths = t.at;
    if (t.damaged || (uint64_t) (t.end - t.at) < d->minis)
        return false;
    uint64_t mini = d->block / d->minis, left = d->count - d->taken, bytes = 0;
    for (uint64_t i = 0; i < d->minis && i * mini < left; i++) {
        if (d->widths[i] > 64)
            return false;
        bytes += mini * d->widths[i] / 8;
    }
    d->at = t.at + d->minis;
    return mini % 8 == 0 && bytes <= (uint64_t) (d->end - d->at);
}

static uint64_t block_bytes(const sl_parquet_deltas *d, uint64_t left)
{
    uint64_t mini = d->block / d->minis, bytes = 0;
    for (uint64_t i = 0; i < d->minis && i * mini < left; i++)
        bytes += mini * d->widths[i] / 8;
    return bytes;
}

/* The first number stands in the header, so a block holds the deltas of those behind it. */
bool sl_parquet_deltas_next(sl_parquet_deltas *d, int64_t *value)
{
    if (d->taken == d->count)
        return false;
    if (d->taken > 0) {
        if (d->in_block == d->block && !begin_block(d))
            return false;
        int width = d->widths[d->in_block / (d->block / d->minis)];
        uint64_t delta = bits_at(d->at, d->bit, width) + (uint64_t) d->least;
        d->value = (int64_t) ((uint64_t) d->value + delta);
        d->bit += (uint64_t) width;
        if (++d->in_block == d->block)
            d->at += d->bit / 8;
    }
    d->taken++;
    *value = d->value;
    return true;
}

const unsigned char *sl_parquet_deltas_end(sl_parquet_deltas d)
{
    d.taken = 1;
    while (d.taken < d.count) {
        if (!begin_block(&d))
            return NULL;
        d.at += block_bytes(&d, d.count - d.taken);
        d.taken += SL_MIN(d.block, d.count - d.taken);
    }
    return d.at;
}
