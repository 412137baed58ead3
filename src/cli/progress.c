/* Progress on one line: its fields side by side, and of those that do not fit the least important ones are left out, so that no line
 * wraps. The width is the terminal's; in a file or a pipe it is 80 columns, one of which stays free. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

int sl_cli_columns(int fd)
{
    struct winsize window = {0};
    return isatty(fd) && ioctl(fd, TIOCGWINSZ, &window) == 0 && window.ws_col > 1 ? window.ws_col : 0;
}

int sl_cli_width(void)
{
    int columns = sl_cli_is_terminal() ? sl_cli_columns(STDERR_FILENO) : 0;
    return (columns ? columns : 80) - 1;
}

static const char between[] = "  ";

void sl_cli_fit(const sl_cli_field *fields, int count, int width, char out[SL_CLI_LINE])
{
    bool shown[16];
    int length = 0, left = count;
    SL_ASSERT(count <= (int) SL_COUNT(shown));
    for (int i = 0; i < count; i++) {
        shown[i] = fields[i].text[0] != 0;
        length += shown[i] ? (int) (strlen(fields[i].text) + strlen(between)) : 0;
    }
    for (width = SL_MIN(width, SL_CLI_LINE - 1); length - (int) strlen(between) > width && left > 1; left--) {
        int least = -1;
        for (int i = 0; i < count; i++)
            if (shown[i] && (least < 0 || fields[i].importance < fields[least].importance))
                least = i;
        if (least < 0)
            break;
        shown[least] = false;
        length -= (int) (strlen(fields[least].text) + strlen(between));
    }
    out[0] = 0;
    for (int i = 0, used = 0; i < count && used < width; i++)
        if (shown[i]) {
            int wrote = snprintf(out + used, (size_t) (width - used + 1), "%s%s", used ? between : "", fields[i].text);
            used = SL_MIN(used + wrote, width);
        }
}

static void format_left(double seconds, char out[32])
{
    int64_t s = isfinite(seconds) && seconds > 0 ? (int64_t) (fmin(seconds, 1e15) + 0.5) : 0, hours = s / 3600;
    if (hours >= 1000)
        snprintf(out, 32, "left %lldd", (long long) (hours / 24));
    else if (hours > 0)
        snprintf(out, 32, "left %lldh%02lldm", (long long) hours, (long long) (s / 60 % 60));
    else
        snprintf(out, 32, "left %lldm%02llds", (long long) (s / 60), (long long) (s % 60));
}

void sl_cli_progress_line(const sl_cli_progress *p, int width, char out[SL_CLI_LINE])
{
    char steps[32], step[80], loss[48], rate[32], speed[32], pace[48], mfu[32], memory[32], device[48], left[32];
    int digits = snprintf(steps, sizeof steps, "%lld", (long long) p->steps);
    snprintf(step, sizeof step, "step %*lld/%s", digits, (long long) p->step, steps);
    snprintf(loss, sizeof loss, fabs(p->loss) < 1e5 ? "loss %.4f%s" : "loss %.3e%s", p->loss,
             p->skipped ? " (skipped)" : "");
    snprintf(rate, sizeof rate, "lr %.1e", p->learning_rate);
    snprintf(pace, sizeof pace, "%s tok/s", sl_cli_speed(p->tokens_per_s, speed));
    snprintf(mfu, sizeof mfu, "MFU %.0f %%", 100 * p->mfu);
    snprintf(device, sizeof device, "device %s", sl_format_bytes(p->device_bytes, memory));
    format_left(p->seconds_left, left);
    const sl_cli_field fields[] = {{step, 7}, {loss, 6}, {rate, 3}, {pace, 4}, {mfu, 2}, {device, 1}, {left, 5}};
    sl_cli_fit(fields, (int) SL_COUNT(fields), width, out);
}

/* Appends whole characters as long as there are columns for them; what is no character to see becomes one space. */
static void append_flat(const char *text, int columns, int *used, char out[SL_CLI_LINE])
{
    size_t at = strlen(out);
    while (*text && *used < columns) {
        const unsigned char first = (unsigned char) *text;
        int bytes = 1;
        while (first >= 0xc0 && ((unsigned char) text[bytes] & 0xc0) == 0x80)
            bytes++;
        const bool seen = first > ' ' && first != 0x7f && !(first == 0xc2 && (unsigned char) text[1] < 0xa0);
        if (at + (size_t) bytes + 4 > SL_CLI_LINE)
            break;
        if (seen || (at > 0 && out[at - 1] != ' ')) {
            memcpy(out + at, seen ? text : " ", seen ? (size_t) bytes : 1);
            at += seen ? (size_t) bytes : 1;
            ++*used;
        }
        text += bytes;
    }
    memcpy(out + at, *text ? "…" : "", *text ? 4 : 1);
}

void sl_cli_sample_line(int64_t step, const char *prompt, const char *text, int width, char out[SL_CLI_LINE])
{
    int used = snprintf(out, SL_CLI_LINE, "     after step %lld: ", (long long) step);
    const int columns = width - 3; /* two quotes, and what stands for the rest */
    if (prompt[0]) {
        append_flat("\"", columns, &used, out);
        append_flat(prompt, SL_MIN(columns, used + width / 3), &used, out);
        append_flat("\"", width, &used, out);
    }
    append_flat(text, columns, &used, out);
}
