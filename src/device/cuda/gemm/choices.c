/*
 * A table in memory, backed by two text files of the same format, one choice a line:
 *
 *     machine <tab> m n k lda ldb ldc trans_a trans_b in out bias add [batch] <tab> the algorithm as 8 words in hexadecimal
 *
 * Lines are appended with one write, so processes side by side do not mix theirs. Lines that cannot be read are passed over: all
 * they cost is a measurement. Where both files know a product, the run's own wins.
 */
#include "device/cuda/gemm/choices.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MACHINE = 128, PATH = 1024, ALGO_WORDS = 8 };

typedef struct choice {
    struct choice *next;
    char machine[MACHINE];
    sl_cuda_gemm gemm;
    cublasLtMatmulAlgo_t algo;
    bool in_run;   /* the run's file has it */
    bool in_cache; /* measured, and so for later runs too */
} choice;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static choice *choices; /* newest first; the cache's where the run has none */
static char run_path[PATH], cache_path[PATH];

static bool parse(const char *line, choice *c)
{
    long long v[12];
    int at = 0;
    if (sscanf(line, "%127[^\t]\t%lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld %lld%n", c->machine, &v[0],
               &v[1], &v[2], &v[3], &v[4], &v[5], &v[6], &v[7], &v[8], &v[9], &v[10], &v[11], &at) < 13 ||
        at == 0)
        return false;
    const char *word = line + at;
    char *end;
    int64_t batch = 0;
    if (*word == ' ') {
        batch = strtoll(word, &end, 10);
        word = end;
    }
    if (*word != '\t')
        return false;
    memset(&c->gemm, 0, sizeof c->gemm);
    c->gemm = (sl_cuda_gemm){v[0],
                             v[1],
                             v[2],
                             v[3],
                             v[4],
                             v[5],
                             (int32_t) v[6],
                             (int32_t) v[7],
                             (int32_t) v[8],
                             (int32_t) v[9],
                             (int32_t) v[10],
                             (int32_t) v[11],
                             batch};
    for (int i = 0; i < ALGO_WORDS; i++) {
        c->algo.data[i] = strtoull(word, &end, 16);
        if (end == word)
            return false;
        word = end;
    }
    return *word == '\n'; /* whole: the end of one that was cut may be half a word */
}

static void print(const choice *c, char *out, size_t size)
{
    const sl_cuda_gemm *g = &c->gemm;
    int at = snprintf(
        out, size, "%s\t%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %d %d %d %d %d %d",
        c->machine, g->m, g->n, g->k, g->lda, g->ldb, g->ldc, g->trans_a, g->trans_b, g->in, g->out, g->bias, g->add);
    if (g->batch)
        at += snprintf(out + at, size - (size_t) at, " %" PRId64, g->batch);
    for (int i = 0; i < ALGO_WORDS; i++)
        at += snprintf(out + at, size - (size_t) at, "%c%" PRIx64, i ? ' ' : '\t', c->algo.data[i]);
    snprintf(out + at, size - (size_t) at, "\n");
}

static void append(const char *path, const choice *c)
{
    char line[512];
    int file = path[0] ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (file < 0)
        return; /* measured again next time */
    print(c, line, sizeof line);
    ssize_t written = write(file, line, strlen(line));
    (void) written;
    close(file);
}

static choice *find(const char *machine, const sl_cuda_gemm *gemm)
{
    for (choice *c = choices; c; c = c->next)
        if (strcmp(c->machine, machine) == 0 && memcmp(&c->gemm, gemm, sizeof *gemm) == 0)
            return c;
    return NULL;
}

static void insert(const choice *from)
{
    choice *c = malloc(sizeof *c);
    if (!c)
        return;
    *c = *from;
    c->next = choices;
    choices = c;
}

static void load(const char *path, bool in_run)
{
    char line[512];
    FILE *file = path[0] ? fopen(path, "re") : NULL;
    while (file && fgets(line, sizeof line, file)) {
        choice c = {.in_run = in_run, .in_cache = !in_run}, *known;
        if (!parse(line, &c))
            continue;
        if (!in_run && (known = find(c.machine, &c.gemm)))
            known->in_cache = true;
        else
            insert(&c);
    }
    if (file)
        fclose(file);
}

void sl_cuda_choices_files(const char *run, const char *cache)
{
    pthread_mutex_lock(&lock);
    snprintf(run_path, sizeof run_path, "%s", run ? run : "");
    snprintf(cache_path, sizeof cache_path, "%s", cache ? cache : "");
    while (choices) {
        choice *next = choices->next;
        free(choices);
        choices = next;
    }
    load(run_path, true);
    load(cache_path, false);
    pthread_mutex_unlock(&lock);
}

bool sl_cuda_choice_find(const char *machine, const sl_cuda_gemm *gemm, cublasLtMatmulAlgo_t *algo)
{
    pthread_mutex_lock(&lock);
    choice *c = find(machine, gemm);
    if (c) {
        *algo = c->algo;
        if (!c->in_run)
            append(run_path, c);
        c->in_run = true;
    }
    pthread_mutex_unlock(&lock);
    return c != NULL;
}

static void add(const char *machine, const sl_cuda_gemm *gemm, const cublasLtMatmulAlgo_t *algo, bool measured)
{
    choice c = {.gemm = *gemm, .algo = *algo, .in_run = true, .in_cache = measured};
    snprintf(c.machine, sizeof c.machine, "%s", machine);
    if (find(machine, gemm))
        return;
    insert(&c);
    append(run_path, &c);
    if (measured)
        append(cache_path, &c);
}

void sl_cuda_choice_add(const char *machine, const sl_cuda_gemm *gemm, const cublasLtMatmulAlgo_t *algo, bool measured)
{
    pthread_mutex_lock(&lock);
    add(machine, gemm, algo, measured);
    pthread_mutex_unlock(&lock);
}

bool sl_cuda_choice_follow(const char *machine, const sl_cuda_gemm *gemm, const sl_cuda_gemm *twin,
                           cublasLtMatmulAlgo_t *algo)
{
    pthread_mutex_lock(&lock);
    const choice *c = find(machine, twin);
    if (c) {
        *algo = c->algo;
        add(machine, gemm, algo, c->in_cache);
    }
    pthread_mutex_unlock(&lock);
    return c != NULL;
}
