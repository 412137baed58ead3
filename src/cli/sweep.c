/*
 * `sluice sweep`: a grid of jobs, one line of JSON for each finished cell.
 *
 * Each cell is checked and worked out by a process of its own, so that nothing a cell does, not even running out of memory, can
 * take the sweep with it; its result comes back through a pipe as one small struct. Only this process writes the file, a line with
 * one write(2): a kill at any moment leaves whole lines and at most one half, which the next start cuts off. What has an answer, fits
 * or not, is never recomputed; what failed is.
 *
 * The first line tells what was swept. Its "identity" is a hash of all options but the grid, so a file can be extended by more
 * cells of the same kind, and is not mixed with others.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/child.h"
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/clock.h"
#include "core/events.h"
#include "core/file.h"
#include "core/hash.h"
#include "core/io_error.h"
#include "core/log.h"
#include "report/report.h"

static const char usage[] = "usage: sluice sweep --model M[,...] --seqlen S[,...] --device-mem BYTES[,...]\n"
                            "                    --host-mem BYTES[,...] [--hw NAME|FILE]\n"
                            "                    [--run --data D --steps N] [--out FILE] [--csv FILE] ...\n"
                            "\n"
                            "Plans (or with --run trains) every combination and writes a line for each:\n"
                            "speed, MFU, memory, what limits it. What does not fit is a line too, with the\n"
                            "budgets that would work. Takes the other options of `sluice train` for all\n"
                            "cells. A sweep that was killed continues where it stopped; `sluice report FILE`\n"
                            "draws its heat maps.";

enum { MOST_JOBS = 256 };

typedef struct worker {
    pid_t pid; /* 0: idle */
    int pipe;
    int64_t cell;
} worker;

typedef struct sweep {
    const sl_options *options;
    sl_sweep_grid grid;
    const char *path;
    sl_events *events;
    int lock; /* file descriptor that holds it; -1: none */
    bool run, quiet;
    worker workers[MOST_JOBS];
    int n_workers;
    int64_t next, finished, fits, failed, found; /* found: cells that were done before */
    double best, began;
    const sl_sweep_cell *best_cell;
} sweep;

/* ---- the file ---- */

/* The grid, the files and how many at a time do not change what a cell is. */
static bool is_identity(const char *name)
{
    static const char *const others[] = {"model", "seqlen", "device-mem", "host-mem", "jobs",    "out",    "csv",
                                         "force", "config", "quiet",      "verbose",  "threads", "dry-run"};
    for (int64_t i = 0; i < SL_COUNT(others); i++)
        if (strcmp(others[i], name) == 0)
            return false;
    return true;
}

static void identity(const sl_options *options, char out[17])
{
    int64_t count;
    const sl_option *table = sl_sweep_table(&count);
    uint64_t hash = 0;
    for (int64_t i = 0; i < count; i++) {
        const char *value = is_identity(table[i].name) ? sl_options_string(options, table[i].name) : NULL;
        if (!value)
            continue;
        hash = sl_hash64(table[i].name, strlen(table[i].name) + 1, hash);
        hash = sl_hash64(value, strlen(value) + 1, hash);
    }
    snprintf(out, 17, "%016" PRIx64, hash);
}

/* Is there a sweep, complete or just begun? Any other file is left alone. */
static sl_status look_at_file(const char *path, bool *there)
{
    static const char begin[] = "{\"event\":\"sweep\"";
    char head[sizeof begin] = {0};
    int64_t size = 0;
    sl_reader *reader;
    *there = false;
    if (!sl_file_exists(path))
        return SL_OK;
    SL_TRY(sl_reader_open(path, &reader));
    size = SL_MIN(sl_reader_size(reader), (int64_t) sizeof begin - 1);
    sl_status status = size > 0 ? sl_reader_read(reader, 0, head, (size_t) size) : SL_OK;
    sl_reader_close(reader);
    SL_TRY(status);
    if (strncmp(head, begin, (size_t) size) != 0)
        return sl_fail(SL_E_USAGE, "%s is there and is no sweep: give another --out", path);
    *there = true;
    return SL_OK;
}

static sl_status write_header(sweep *s, const char *id)
{
    char time[32];
    int64_t count;
    const sl_option *table = sl_sweep_table(&count);
    sl_clock_utc(time);
    sl_json_writer *w = sl_events_begin(s->events, "sweep");
    sl_json_put_string(w, "kind", "sweep");
    sl_json_put_string(w, "name", sl_options_string(s->options, "model"));
    sl_json_put_string(w, "identity", id);
    sl_json_put_string(w, "sluice", SL_VERSION);
    sl_json_put_string(w, "time", time);
    sl_json_put_string(w, "figures", s->run ? "measured" : "predicted");
    for (int64_t i = 0; i < count; i++) /* what was given, for people */
        if (is_identity(table[i].name) && strcmp(table[i].name, "run") != 0 &&
            sl_options_is_set(s->options, table[i].name))
            sl_json_put_string(w, table[i].name, sl_options_string(s->options, table[i].name));
    sl_sweep_put_columns(w, s->run);
    return sl_events_end(s->events);
}

/* What fits and what does not both tell the tokens of a step; a line without them tells of a failure, which may be gone. */
static bool is_answer(const sl_grid *grid, int64_t row)
{
    return isfinite(sl_grid_number(grid, row, sl_grid_find(grid, "tokens_per_step")));
}

static sl_status mark_done(sweep *s, const sl_input *input, const char *id)
{
    const sl_tables *t = input->tables;
    const char *theirs = "";
    if (!t || strcmp(t->kind, "sweep") != 0)
        return sl_fail(SL_E_USAGE, "%s is there and is no sweep: give another --out", s->path);
    for (int64_t i = 0; i < t->n_facts; i++)
        if (strcmp(t->facts[i].key, "identity") == 0 && t->facts[i].value.kind == SL_VALUE_TEXT)
            theirs = t->facts[i].value.text;
    if (strcmp(theirs, id) != 0)
        return sl_fail(SL_E_USAGE,
                       "%s holds a sweep with other options: give another --out, or --force to start it over", s->path);
    int64_t key = sl_grid_find(t->grids, "cell"), speed = sl_grid_find(t->grids, "tokens_per_s");
    for (int64_t row = 0; row < t->grids->n_rows; row++)
        for (int64_t i = 0; i < s->grid.count; i++) {
            sl_sweep_cell *cell = &s->grid.cells[i];
            if (cell->done || strcmp(sl_grid_text(t->grids, row, key), cell->key) != 0 || !is_answer(t->grids, row))
                continue;
            cell->done = true;
            s->found++;
            s->fits += sl_grid_number(t->grids, row, speed) > 0;
            if (sl_grid_number(t->grids, row, speed) > s->best) {
                s->best = sl_grid_number(t->grids, row, speed);
                s->best_cell = cell;
            }
        }
    return SL_OK;
}

/* Two sweeps into one file would do cells twice. The process of a cell has the lock too until it first runs and closes it; where
 * its sweep is killed before that, the lock is still held for a moment, so the next sweep waits a little. */
static sl_status lock(const char *path, int *fd)
{
    const double patience_s = 3;
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return sl_io_failed("write", path, errno, 0);
    if (!sl_cli_lock(*fd, patience_s))
        return sl_fail(SL_E_USAGE, "%s is being written by another sweep: wait for it, or give another --out", path);
    return SL_OK;
}

static sl_status open_file(sweep *s)
{
    char id[17];
    bool there;
    int64_t size = 0;
    identity(s->options, id);
    SL_TRY(look_at_file(s->path, &there));
    SL_TRY(lock(s->path, &s->lock));
    if (there && sl_options_flag(s->options, "force") && truncate(s->path, 0) != 0)
        return sl_io_failed("write", s->path, errno, 0);
    SL_TRY(sl_events_open(s->path, &s->events)); /* cuts half a line off */
    SL_TRY(sl_file_size(s->path, &size));
    if (size == 0)
        return write_header(s, id);
    sl_input *input;
    SL_TRY(sl_input_read(s->path, &input));
    sl_status status = mark_done(s, input, id);
    sl_input_destroy(input);
    return status;
}

/* ---- progress ---- */

static void show_progress(const sweep *s, const sl_sweep_cell *cell, const sl_sweep_result *r)
{
    int64_t all = s->grid.count - s->found, left = all - s->finished, every = SL_MAX(all / 20, 1);
    double pace = (sl_clock_s() - s->began) / (double) SL_MAX(s->finished, 1);
    char line[SL_CLI_LINE], at[64], what[64], device[64], host[64], speed[48], left_text[64], a[32];
    if (s->quiet)
        return;
    snprintf(at, sizeof at, "cell %lld/%lld", (long long) (s->found + s->finished), (long long) s->grid.count);
    snprintf(what, sizeof what, "%.40s %lld", cell->model, (long long) cell->seqlen);
    snprintf(device, sizeof device, "device %s", sl_format_bytes(cell->budget[SL_TIER_DEVICE], a));
    snprintf(host, sizeof host, "host %s", sl_format_bytes(cell->budget[SL_TIER_HOST], a));
    if (r->status == SL_OK)
        snprintf(speed, sizeof speed, "%s tok/s", sl_cli_speed((s->run ? r->measured : r->predicted).tokens_per_s, a));
    else
        snprintf(speed, sizeof speed, "%s", r->status == SL_E_DOES_NOT_FIT ? "does not fit" : "failed");
    snprintf(left_text, sizeof left_text, "left %s", sl_format_seconds(pace * (double) left, a));
    const sl_cli_field fields[] = {{at, 6}, {what, 3}, {device, 4}, {host, 2}, {speed, 5}, {left_text, 1}};
    sl_cli_fit(fields, (int) SL_COUNT(fields), sl_cli_width(), line);
    if (sl_cli_is_terminal() && left > 0)
        sl_cli_status_line(line);
    else if (s->finished % every == 0 || left == 0) {
        sl_cli_status_clear();
        printf("%s\n", line);
        fflush(stdout);
    }
}

static void show_end(const sweep *s, const char *csv)
{
    char seconds[32], best[32], device[32], host[32];
    sl_cli_status_clear();
    printf("%lld cell%s: %lld fit, %lld do not%s", (long long) s->grid.count, sl_cli_plural(s->grid.count),
           (long long) s->fits, (long long) (s->grid.count - s->fits - s->failed), s->failed ? "" : "; ");
    if (s->failed)
        printf(", %lld failed; ", (long long) s->failed);
    printf("%lld done in %s%s\n", (long long) s->finished, sl_format_seconds(sl_clock_s() - s->began, seconds),
           s->found ? ", the others were there" : "");
    if (s->best_cell)
        printf("best    %s tok/s: %s %lld  device %s  host %s\n", sl_cli_speed(s->best, best), s->best_cell->model,
               (long long) s->best_cell->seqlen, sl_format_bytes(s->best_cell->budget[SL_TIER_DEVICE], device),
               sl_format_bytes(s->best_cell->budget[SL_TIER_HOST], host));
    printf("cells   %s\n", s->path);
    if (csv)
        printf("csv     %s\n", csv);
    printf("see it  sluice report %s\n", s->path);
}

/* ---- workers ---- */

static sl_status start(sweep *s, worker *w)
{
    pid_t pid;
    int end;
    while (s->next < s->grid.count && s->grid.cells[s->next].done)
        s->next++;
    if (s->next == s->grid.count)
        return SL_OK;
    SL_TRY(sl_child_spawn(s->lock, &pid, &end)); /* a child that kept the lock would outlive a killed sweep with it */
    if (pid == 0) {
        sl_sweep_result result;
        sl_log_set(NULL, NULL, SL_LOG_ERROR);
        sl_sweep_cell_run(s->options, &s->grid.cells[s->next], s->run, &result);
        sl_child_answer(end, &result, sizeof result);
    }
    *w = (worker){pid, end, s->next++};
    return SL_OK;
}

static sl_status finish(sweep *s, worker *w)
{
    sl_sweep_cell *cell = &s->grid.cells[w->cell];
    sl_sweep_result r;
    char error[128];
    if (!sl_child_receive(w->pid, w->pipe, &r, sizeof r, error)) {
        r = (sl_sweep_result){.status = SL_E_INTERNAL};
        snprintf(r.error, sizeof r.error, "%s", error);
    }
    w->pid = 0;
    double speed = (s->run ? r.measured : r.predicted).tokens_per_s;
    cell->done = true;
    s->finished++;
    s->fits += r.status == SL_OK;
    s->failed += r.status != SL_OK && r.status != SL_E_DOES_NOT_FIT;
    if (r.status == SL_OK && speed > s->best) {
        s->best = speed;
        s->best_cell = cell;
    }
    sl_json_writer *line = sl_events_begin(s->events, "cell");
    sl_sweep_put_result(line, cell, &r, s->run);
    SL_TRY(sl_events_end(s->events));
    show_progress(s, cell, &r);
    return SL_OK;
}

/* Receives results in the order in which cells finish. */
static sl_status collect(sweep *s, bool *any)
{
    struct pollfd polled[MOST_JOBS];
    int at[MOST_JOBS], n = 0;
    for (int i = 0; i < s->n_workers; i++)
        if (s->workers[i].pid) {
            polled[n] = (struct pollfd){.fd = s->workers[i].pipe, .events = POLLIN};
            at[n++] = i;
        }
    *any = n > 0;
    if (n == 0 || (poll(polled, (nfds_t) n, -1) < 0 && errno == EINTR))
        return SL_OK;
    for (int i = 0; i < n; i++)
        if (polled[i].revents)
            SL_TRY(finish(s, &s->workers[at[i]]));
    return SL_OK;
}

static void stop_workers(sweep *s)
{
    for (int i = 0; i < s->n_workers; i++)
        if (s->workers[i].pid) {
            kill(s->workers[i].pid, SIGKILL);
            waitpid(s->workers[i].pid, NULL, 0);
            close(s->workers[i].pipe);
        }
}

static sl_status run_cells(sweep *s)
{
    for (bool any = true; any;) {
        for (int i = 0; i < s->n_workers; i++)
            if (!s->workers[i].pid)
                SL_TRY(start(s, &s->workers[i]));
        SL_TRY(collect(s, &any));
    }
    return SL_OK;
}

/* ---- */

typedef struct check {
    sl_status status;
    bool measures; /* a cell times kernels on this machine */
    char error[512];
} check;

static void check_cells(const sweep *s, check *c)
{
    const sl_sweep_cell *last = NULL;
    *c = (check){.status = SL_OK};
    for (int64_t i = 0; i < s->grid.count && c->status == SL_OK; i++) {
        const sl_sweep_cell *cell = &s->grid.cells[i];
        if (!last || last->model != cell->model || last->seqlen != cell->seqlen)
            c->status = sl_sweep_cell_check(s->options, cell, &c->measures);
        last = cell;
    }
    if (c->status != SL_OK)
        snprintf(c->error, sizeof c->error, "%s", sl_error_message());
}

/* Wrong models and lengths are reported before the first cell, not as a hundred failed ones. A child checks them: to
 * find a GPU is to initialise its driver, which no process forked after that could use. */
static sl_status check_jobs(sweep *s)
{
    int64_t jobs = sl_options_i64(s->options, "jobs");
    pid_t pid;
    int end;
    check c;
    char error[128];
    SL_TRY(sl_child_spawn(s->lock, &pid, &end));
    if (pid == 0) {
        check_cells(s, &c);
        sl_child_answer(end, &c, sizeof c);
    }
    if (!sl_child_receive(pid, end, &c, sizeof c, error))
        return sl_fail(SL_E_INTERNAL, "the cells cannot be checked: %s", error);
    if (c.status != SL_OK)
        return sl_fail(c.status, "%s", c.error);
    if (s->run && !sl_options_is_set(s->options, "data"))
        return sl_fail(SL_E_USAGE, "--run trains, so it needs --data");
    if (jobs < 0 || jobs > MOST_JOBS)
        return sl_fail(SL_E_USAGE, "--jobs %lld is out of range: 1 to %d, or 0 for one per core", (long long) jobs,
                       MOST_JOBS);
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    s->n_workers = (int) (jobs ? jobs : SL_MAX(SL_MIN(cores, MOST_JOBS), 1));
    if (s->run || c.measures) /* they would disturb each other's times */
        s->n_workers = 1;
    return SL_OK;
}

static sl_status write_csv(const char *from, const char *to)
{
    sl_input *input;
    sl_text csv = {0};
    SL_TRY(sl_input_read(from, &input));
    sl_report_csv(&csv, input);
    sl_input_destroy(input);
    return sl_cli_write(&csv, to);
}

static sl_status sweep_all(const sl_options *options, const char *const *operands, int64_t n_operands)
{
    (void) operands, (void) n_operands;
    sweep *s;
    const char *csv = sl_options_string(options, "csv");
    SL_TRY(sl_alloc(&s, 1, sizeof *s));
    s->options = options;
    s->lock = -1;
    s->path = sl_options_string(options, "out");
    s->run = sl_options_flag(options, "run");
    s->quiet = sl_options_flag(options, "quiet");
    s->began = sl_clock_s();
    sl_status status = sl_sweep_grid_create(options, &s->grid);
    if (status != SL_OK) {
        sl_free(s);
        return status;
    }
    SL_TRY_GOTO(check_jobs(s), done);
    if (sl_options_flag(options, "dry-run")) {
        printf("%lld cell%s, %d at a time; nothing is planned or written\n", (long long) s->grid.count,
               sl_cli_plural(s->grid.count), s->n_workers);
        goto done;
    }
    if (csv)
        SL_TRY_GOTO(sl_cli_check_writable(csv), done);
    SL_TRY_GOTO(open_file(s), done);
    SL_TRY_GOTO(run_cells(s), done);
    if (csv)
        SL_TRY_GOTO(write_csv(s->path, csv), done);
    show_end(s, csv);
done:
    stop_workers(s);
    sl_events_close(s->events);
    if (s->lock >= 0)
        close(s->lock);
    sl_region_destroy(s->grid.region);
    sl_free(s);
    return status;
}

const sl_cli_command sl_cli_sweep = {.usage = usage, .options = sl_sweep_table, .run = sweep_all};
