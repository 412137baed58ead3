/* Numbers are read and written in the C locale whatever the program around us chose: "1,5" in a JSON file or a run's
 * record would be a different number, or none. */
#include "core/text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/mem.h"

static locale_t c_locale;
static pthread_once_t c_locale_once = PTHREAD_ONCE_INIT;

static void make_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t) 0);
}

static locale_t plain_locale(void)
{
    pthread_once(&c_locale_once, make_c_locale);
    return c_locale;
}

/* ---- growing text ---- */

void sl_text_free(sl_text *text)
{
    sl_free(text->data);
    *text = (sl_text){0};
}

static bool reserve(sl_text *text, size_t more)
{
    size_t need;
    if (text->failed || __builtin_add_overflow(text->length, more, &need) || need > PTRDIFF_MAX / 2) {
        text->failed = true;
        return false;
    }
    if (need + 1 <= text->capacity)
        return true;
    size_t capacity = SL_MAX((size_t) 64, text->capacity * 2);
    capacity = SL_MAX(capacity, need + 1);
    if (sl_grow(&text->data, text->length, capacity, 1) != SL_OK) {
        text->failed = true;
        return false;
    }
    text->capacity = capacity;
    return true;
}

void sl_text_append(sl_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    if (length)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = 0;
}

void sl_text_printf(sl_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (!reserve(text, (size_t) length)) /* -1 is too much */
        return;
    va_start(arguments, format);
    vsnprintf(text->data + text->length, (size_t) length + 1, format, arguments);
    va_end(arguments);
    text->length += (size_t) length;
}

sl_status sl_text_status(const sl_text *text)
{
    if (text->failed)
        return sl_fail(SL_E_MEMORY, "out of memory for a text of more than %zu bytes", text->length);
    return SL_OK;
}

int sl_text_columns(const char *text)
{
    int columns = 0;
    for (; *text; text++)
        columns += ((unsigned char) *text & 0xc0) != 0x80;
    return columns;
}

/* printf counts bytes; a "–" has three. */
void sl_text_pad(sl_text *out, const char *text, int width, bool right)
{
    int blank = SL_MAX(width - sl_text_columns(text), 0);
    sl_text_printf(out, "%*s%s%*s", right ? blank : 0, "", text, right ? 0 : blank, "");
}

void sl_text_bar(sl_text *out, double share, int width)
{
    static const char *const parts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int eighths = (int) lround(8 * width * fmin(fmax(share, 0), 1));
    for (int i = 0; i < eighths / 8; i++)
        sl_text_printf(out, "█");
    sl_text_printf(out, "%s", parts[eighths % 8]);
}

/* ---- reading numbers ---- */

bool sl_next_item(const char **list, char *item, size_t size)
{
    if (!*list)
        return false;
    const char *at = *list + strspn(*list, ", ");
    const size_t length = strcspn(at, ", ");
    snprintf(item, size, "%.*s", (int) SL_MIN(length, size - 1), at);
    *list = at + length;
    return length > 0;
}

static const char *skip_spaces(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

typedef struct unit {
    const char *name;
    uint64_t factor;
} unit;

static const unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", 1ull << 10},
    {"MiB", 1ull << 20},
    {"GiB", 1ull << 30},
    {"TiB", 1ull << 40},
    {"PiB", 1ull << 50},
    {"kB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", 1000000000000},
    {"PB", 1000000000000000},
};

/* Digits with at most one point, exactly: whole part as an integer, the fraction apart, so that no byte is lost to
 * rounding and no exponent, sign, "nan" or hexadecimal slips in. */
static bool read_decimal(const char **at, uint64_t *whole, double *fraction)
{
    const char *start = *at;
    uint64_t value = 0;
    for (; isdigit((unsigned char) **at); ++*at)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t) (**at - '0'), &value))
            return false;
    bool digits = *at > start;
    *fraction = 0;
    if (digits && **at == '.') {
        double place = 0.1;
        for (++*at; isdigit((unsigned char) **at); ++*at, place *= 0.1)
            *fraction += (**at - '0') * place;
    }
    *whole = value;
    return digits;
}

sl_status sl_parse_bytes(const char *text, size_t *out)
{
    const char *at = skip_spaces(text);
    if (strcasecmp(at, "max") == 0 || strcasecmp(at, "unlimited") == 0) {
        *out = SIZE_MAX;
        return SL_OK;
    }
    uint64_t whole;
    double fraction;
    if (!read_decimal(&at, &whole, &fraction))
        return sl_fail(SL_E_USAGE,
                       "\"%.60s\" is not an amount of memory; write for example 24GiB, 512MiB, 1.5GB or unlimited",
                       text);
    at = skip_spaces(at);
    size_t length = strcspn(at, " \t");
    if (*skip_spaces(at + length) != 0)
        length = strlen(at);
    for (int64_t i = 0; i < SL_COUNT(byte_units); i++) {
        if (strlen(byte_units[i].name) != length || strncasecmp(at, byte_units[i].name, length) != 0)
            continue;
        uint64_t bytes;
        if (__builtin_mul_overflow(whole, byte_units[i].factor, &bytes) ||
            __builtin_add_overflow(bytes, (uint64_t) llround(fraction * (double) byte_units[i].factor), &bytes) ||
            bytes > INT64_MAX)
            return sl_fail(SL_E_USAGE, "\"%.60s\" is more memory than can be addressed; write unlimited for no limit",
                           text);
        *out = bytes;
        return SL_OK;
    }
    return sl_fail(
        SL_E_USAGE,
        "\"%.60s\" has no unit of memory I know; use KiB, MiB, GiB, TiB (binary) or kB, MB, GB, TB (decimal)", text);
}

sl_status sl_parse_budget(const char *text, sl_budget *out)
{
    const char *at = skip_spaces(text);
    uint64_t whole;
    double fraction;
    size_t bytes;
    if (!strchr(text, '%')) {
        SL_TRY(sl_parse_bytes(text, &bytes));
        *out = (sl_budget){.bytes = bytes};
        return SL_OK;
    }
    if (!read_decimal(&at, &whole, &fraction) || *(at = skip_spaces(at)) != '%' || *skip_spaces(at + 1))
        return sl_fail(SL_E_USAGE, "\"%.60s\" is not a percentage; write for example 40%% or 12.5%%", text);
    double percent = (double) whole + fraction;
    if (!(percent > 0 && percent <= 1e6))
        return sl_fail(SL_E_USAGE, "\"%.60s\" is out of range: give a percentage above 0 and up to 1000000%%", text);
    *out = (sl_budget){.bytes = SIZE_MAX, .share = percent / 100};
    return SL_OK;
}

double sl_percent_up(size_t bytes, size_t whole)
{
    return whole ? ceil(1000 * (double) bytes / (double) whole) / 10 : 0;
}

sl_status sl_parse_i64(const char *text, int64_t *out)
{
    const char *at = skip_spaces(text);
    char *end;
    errno = 0;
    long long value = strtoll(at, &end, 10);
    bool ok = end != at && !isspace((unsigned char) *at), large = errno == ERANGE;
    int shift = 0;
    if (*end == 'k' || *end == 'K')
        shift = 10, end++;
    else if (*end == 'M')
        shift = 20, end++;
    else if (*end == 'G')
        shift = 30, end++;
    if (!ok || *skip_spaces(end))
        return sl_fail(SL_E_USAGE, "\"%.60s\" is not a whole number; write for example 524288, 512k or 1M", text);
    if (large || __builtin_mul_overflow(value, 1ll << shift, &value))
        return sl_fail(SL_E_USAGE, "\"%.60s\" is too large a number", text);
    *out = value;
    return SL_OK;
}

sl_status sl_parse_f64(const char *text, double *out)
{
    const char *at = skip_spaces(text);
    char *end;
    double value = strtod_l(at, &end, plain_locale());
    if (end == at || isspace((unsigned char) *at) || *skip_spaces(end) || !isfinite(value) || strpbrk(text, "xX"))
        return sl_fail(SL_E_USAGE, "\"%.60s\" is not a number; write for example 0.0003 or 3e-4", text);
    *out = value;
    return SL_OK;
}

sl_status sl_parse_bool(const char *text, bool *out)
{
    static const char *const yes[] = {"true", "yes", "on", "1"}, *const no[] = {"false", "no", "off", "0"};
    for (int i = 0; i < 4; i++)
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            *out = strcasecmp(text, yes[i]) == 0;
            return SL_OK;
        }
    return sl_fail(SL_E_USAGE, "\"%.60s\" is neither true nor false", text);
}

/* ---- showing numbers ---- */

static char *format_bytes(size_t bytes, bool up, char out[32])
{
    const double most = up ? 1023.9 : 1023.95; /* from there on a unit's figure would be shown as 1024.0 */
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    if (bytes == SIZE_MAX) {
        strcpy(out, "unlimited");
        return out;
    }
    int power = 0;
    double value = (double) bytes;
    while (value >= most && power < 6)
        value /= 1024, power++;
    if (power == 0)
        snprintf(out, 32, "%zu B", bytes);
    else
        snprintf(out, 32, "%.1f %s", up ? ceil(10 * value) / 10 : value, units[power]);
    return out;
}

char *sl_format_bytes(size_t bytes, char out[32])
{
    return format_bytes(bytes, false, out);
}

char *sl_format_bytes_up(size_t bytes, char out[32])
{
    return format_bytes(bytes, true, out);
}

char *sl_format_seconds(double seconds, char out[32])
{
    if (!isfinite(seconds))
        snprintf(out, 32, "-");
    else if (seconds >= 3600)
        snprintf(out, 32, "%.0f h %02d min", floor(seconds / 3600), (int) fmod(seconds, 3600) / 60);
    else if (seconds >= 60)
        snprintf(out, 32, "%d min %02d s", (int) seconds / 60, (int) seconds % 60);
    else if (seconds >= 0.9995 || seconds <= 0)
        snprintf(out, 32, "%.3g s", seconds);
    else if (seconds >= 0.9995e-3)
        snprintf(out, 32, "%.3g ms", seconds * 1e3);
    else if (seconds >= 0.9995e-6)
        snprintf(out, 32, "%.3g us", seconds * 1e6);
    else
        snprintf(out, 32, "%.3g ns", seconds * 1e9);
    return out;
}

char *sl_format_count(int64_t count, char out[32])
{
    char digits[24];
    uint64_t magnitude = count < 0 ? 0 - (uint64_t) count : (uint64_t) count;
    int length = snprintf(digits, sizeof digits, "%" PRIu64, magnitude);
    char *at = out;
    if (count < 0)
        *at++ = '-';
    for (int i = 0; i < length; i++) {
        if (i && (length - i) % 3 == 0)
            *at++ = ',';
        *at++ = digits[i];
    }
    *at = 0;
    return out;
}

char *sl_format_f64(double value, char out[32])
{
    locale_t before = uselocale(plain_locale());
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(out, 32, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    uselocale(before);
    return out;
}

void sl_format_plain(char *out, size_t size, const char *format, va_list arguments)
{
    locale_t before = uselocale(plain_locale());
    vsnprintf(out, size, format, arguments);
    uselocale(before);
}

int sl_utf8_length(const char *at, const char *end)
{
    unsigned char c = (unsigned char) at[0], low = 0x80, high = 0xbf;
    int length = c < 0x80                 ? 1
                 : c >= 0xc2 && c <= 0xdf ? 2
                 : c >= 0xe0 && c <= 0xef ? 3
                 : c >= 0xf0 && c <= 0xf4 ? 4
                                          : 0;
    if (length == 0 || end - at < length)
        return 0;
    if (c == 0xe0)
        low = 0xa0;
    else if (c == 0xed)
        high = 0x9f;
    else if (c == 0xf0)
        low = 0x90;
    else if (c == 0xf4)
        high = 0x8f;
    for (int i = 1; i < length; i++, low = 0x80, high = 0xbf)
        if ((unsigned char) at[i] < low || (unsigned char) at[i] > high)
            return 0;
    return length;
}
