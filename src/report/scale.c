/* Scales are clamped rather than extended: a drawing of a damaged file must stay inside its frame, and a number like 1e308 must
 * neither overflow nor become a million ticks. */
#include "report/scale.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"

double sl_scale_at(const sl_scale *s, double value)
{
    double low = s->low, high = s->high;
    if (!isfinite(value) || (s->log && !(value > 0 && low > 0)))
        return (double) NAN;
    if (s->log) {
        low = log10(low);
        high = log10(high);
        value = log10(value);
    }
    if (!(high > low))
        return (s->from + s->to) / 2;
    double share = fmin(fmax((value - low) / (high - low), 0), 1);
    return s->from + share * (s->to - s->from);
}

/* The smallest of 1, 2, 5 times a power of ten that is at least `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least))), times = least / power;
    return power * (times <= 1.0000001 ? 1 : times <= 2.0000001 ? 2 : times <= 5.0000001 ? 5 : 10);
}

static bool is_range(double low, double high, bool log)
{
    return isfinite(low) && isfinite(high) && high > low && high - low < DBL_MAX / 4 && high - low > DBL_MIN * 1e6 &&
           (!log || low > 0);
}

static int log_ticks(double low, double high, int most, double *out)
{
    int first = (int) floor(log10(low) + 1e-9), last = (int) ceil(log10(high) - 1e-9), every = 1, n = 0;
    static const double dense[] = {1, 2, 5};
    int parts = last - first <= 2 ? 3 : 1;
    while ((last - first) / every + 1 > most)
        every++;
    for (int power = first; power <= last; power += every)
        for (int i = 0; i < parts && n < most; i++) {
            double tick = dense[i] * pow(10, power);
            if (tick >= low * (1 - 1e-9) && tick <= high * (1 + 1e-9))
                out[n++] = tick;
        }
    return n;
}

int sl_ticks(double low, double high, bool log, int most, double out[SL_MOST_TICKS])
{
    most = most > SL_MOST_TICKS ? SL_MOST_TICKS : most;
    if (most < 1)
        return 0;
    if (!is_range(low, high, log)) {
        out[0] = low;
        return isfinite(low) ? 1 : 0;
    }
    if (log)
        return log_ticks(low, high, most, out);
    double step = round_step((high - low) / (most > 1 ? most - 1 : 1));
    int n = 0;
    for (double k = ceil(low / step - 1e-9); k * step <= high + 1e-9 * step && n < most; k++)
        out[n++] = k == 0 ? 0 : k * step;
    return n;
}

void sl_widen(double *low, double *high, bool log, bool zero)
{
    if (!isfinite(*low) || !isfinite(*high) || *high < *low)
        *low = log ? 1 : 0, *high = log ? 10 : 1;
    if (log) {
        *low = fmax(*low, *high * 1e-12);
        if (!(*low > 0))
            *low = 1, *high = 10;
        if (*high <= *low * 1.0001)
            *low /= 2, *high *= 2;
        return;
    }
    if (zero)
        *low = fmin(*low, 0), *high = fmax(*high, 0);
    if (*high == *low)
        *low -= fabs(*low) / 2, *high += fabs(*high) / 2;
    if (*high == *low)
        *high = *low + 1;
    if (!is_range(*low, *high, false))
        return;
    double step = round_step((*high - *low) / 5);
    *low = zero && *low == 0 ? 0 : step * floor(*low / step + 1e-9);
    *high = step * ceil(*high / step - 1e-9);
}

static char *none(char out[32])
{
    strcpy(out, "–");
    return out;
}

/* Three digits that count, without trailing zeros behind the point. */
static void three_digits(double value, char out[32])
{
    double a = fabs(value);
    int decimals = a >= 100 ? 0 : a >= 10 ? 1 : a >= 1 ? 2 : a >= 0.1 ? 3 : 4;
    snprintf(out, 32, "%.*f", decimals, value);
    if (strchr(out, '.')) {
        char *end = out + strlen(out);
        while (end[-1] == '0')
            *--end = 0;
        if (end[-1] == '.')
            end[-1] = 0;
    }
}

char *sl_show(double value, char out[32])
{
    double a = fabs(value);
    if (!isfinite(value))
        return none(out);
    if (a != 0 && (a >= 1e15 || a < 1e-3)) {
        snprintf(out, 32, "%.2e", value);
        return out;
    }
    if (a >= 1000)
        return sl_format_count((int64_t) llround(value), out);
    three_digits(value, out);
    return out;
}

char *sl_show_short(double value, char out[32])
{
    static const struct {
        double from;
        const char *letter;
    } steps[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double a = fabs(value);
    if (!isfinite(value))
        return none(out);
    if (a >= 1e18 || (a != 0 && a < 1e-3)) {
        snprintf(out, 32, "%.0e", value);
        return out;
    }
    for (int64_t i = 0; i < SL_COUNT(steps); i++)
        if (a >= 0.9995 * steps[i].from) {
            three_digits(value / steps[i].from, out);
            strcat(out, steps[i].letter);
            return out;
        }
    three_digits(value, out);
    return out;
}

char *sl_show_rate(double value, const char *unit, char out[64])
{
    char number[32];
    sl_show_short(value, number);
    size_t end = strlen(number);
    bool letter = end > 0 && strchr("kMGTP", number[end - 1]);
    snprintf(out, 64, "%.*s %s%s", (int) (end - letter), number, letter ? number + end - 1 : "", unit);
    return out;
}

char *sl_show_as(double value, sl_quantity quantity, char out[32])
{
    if (!isfinite(value))
        return none(out);
    switch (quantity) {
    case SL_SECONDS: {
        sl_format_seconds(value, out);
        char *micro = strstr(out, " us");
        if (micro)
            strcpy(micro, " µs");
        return out;
    }
    case SL_BYTES:
        return sl_format_bytes(value < 0 ? 0 : value > 1e18 ? (size_t) 1e18 : (size_t) llround(value), out);
    case SL_SHARE:
        snprintf(out, 32, fabs(value) < 10 ? "%.1f %%" : "%.0f %%", 100 * fmin(fmax(value, -1e6), 1e6));
        return out;
    default:
        return sl_show(value, out);
    }
}

const char *sl_show_budget(double bytes, char out[32])
{
    return isinf(bytes) ? "unlimited" : sl_show_as(bytes, SL_BYTES, out);
}

double sl_axis_unit(double largest, sl_quantity quantity, const char **label)
{
    static const struct {
        double from, factor;
        const char *label;
    } seconds[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "µs"}, {0, 1e9, "ns"}},
      bytes[] = {{0x1p40, 0x1p-40, "TiB"},
                 {0x1p30, 0x1p-30, "GiB"},
                 {0x1p20, 0x1p-20, "MiB"},
                 {0x1p10, 0x1p-10, "KiB"},
                 {0, 1, "B"}};
    int at = 0;
    switch (quantity) {
    case SL_SECONDS:
        while (at < 3 && !(largest >= seconds[at].from))
            at++;
        *label = seconds[at].label;
        return seconds[at].factor;
    case SL_BYTES:
        while (at < 4 && !(largest >= bytes[at].from))
            at++;
        *label = bytes[at].label;
        return bytes[at].factor;
    case SL_SHARE:
        *label = "%";
        return 100;
    default:
        *label = "";
        return 1;
    }
}
