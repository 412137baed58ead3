/* A fuzzer that needs no special compiler: first every file of the corpus, then deterministic mutation for a while.
 *
 *     fuzz_x [--seconds S] [--seed N] [FILE...]        with files: runs just these, to look at a finding
 *
 * Inputs are drawn from a pool that starts as the corpus and grows by mutants whose outcome (the value sl_fuzz_one returns,
 * folded with the input's size class) was not seen before: a poor man's coverage, but it keeps what got further. Everything
 * follows from the seed. A crash, a sanitizer report, or an input that takes more than a few seconds of processor time ends the
 * program; the input is then in fuzz-crash-<target> in the current folder. With SL_LIBFUZZER the same targets link to libFuzzer
 * instead. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/hash.h"
#include "core/rng.h"
#include "fuzz/fuzz.h"

enum { MOST_BYTES = 1 << 16, MOST_INPUTS = 4096, OUTCOMES = 4096, SLOW_SECONDS = 10 };

/* In memory: a file system would be the slowest part of it all. */
const char *sl_fuzz_file(const uint8_t *data, size_t size)
{
    static char path[64];
    static int fd = -1;
    if (fd < 0) {
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    FUZZ_REQUIRE(fd >= 0 && ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t) size);
    return path;
}

#ifdef SL_LIBFUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sl_fuzz_one(data, size);
    return 0;
}
#else

typedef struct input {
    uint8_t *bytes;
    size_t size;
} input;

static input inputs[MOST_INPUTS];
static size_t input_count;
static unsigned char outcome_seen[OUTCOMES];
static uint8_t current[MOST_BYTES];
static volatile size_t current_size;
static const char *target_name;
static uint64_t seed, draws;

static uint32_t draw(uint32_t below)
{
    return below ? sl_philox(seed, draws++, 0).v[0] % below : 0;
}

/* The sanitizers end the program without a signal we could see, but call back first. Absent without them. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

/* Only calls that are safe in a signal handler. */
static void save_input(void)
{
    char path[128] = "fuzz-crash-";
    strncat(path, target_name, 100);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0) {
        ssize_t wrote = write(fd, current, current_size);
        static const char note[] = "the input is in ./fuzz-crash-*\n";
        wrote += write(STDERR_FILENO, note, sizeof note - 1);
        (void) wrote;
        close(fd);
    }
}

static void on_signal(int signal_number)
{
    save_input();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void keep(const uint8_t *bytes, size_t size)
{
    if (input_count == MOST_INPUTS)
        return;
    input *fresh = &inputs[input_count];
    fresh->bytes = malloc(size ? size : 1);
    FUZZ_REQUIRE(fresh->bytes);
    memcpy(fresh->bytes, bytes, size);
    fresh->size = size;
    input_count++;
}

static int size_class(size_t size)
{
    int bits = 0;
    for (; size; size >>= 1)
        bits++;
    return bits;
}

/* Of processor time: other programs are no fault of the input's. 0: no limit. */
static void limit_time(int seconds)
{
    const struct itimerval limit = {.it_value.tv_sec = seconds};
    setitimer(ITIMER_PROF, &limit, NULL);
}

/* The input is copied to a block of exactly its size, so that ASan sees a read past its end. */
static void run_current(void)
{
    uint8_t *exact = malloc(current_size ? current_size : 1);
    FUZZ_REQUIRE(exact);
    memcpy(exact, current, current_size);
    limit_time(SLOW_SECONDS);
    int result = sl_fuzz_one(exact, current_size);
    limit_time(0);
    free(exact);
    unsigned key[2] = {(unsigned) result, (unsigned) size_class(current_size)};
    size_t outcome = (size_t) (sl_hash64(key, sizeof key, 0) % OUTCOMES);
    if (!outcome_seen[outcome]) {
        outcome_seen[outcome] = 1;
        keep(current, current_size);
    }
}

/* ---- mutation ---- */

static void replace(size_t at, size_t remove, const uint8_t *bytes, size_t insert)
{
    size_t rest = current_size - at - remove;
    if (at + insert + rest > MOST_BYTES)
        return;
    memmove(current + at + insert, current + at + remove, rest);
    if (insert)
        memcpy(current + at, bytes, insert);
    current_size = at + insert + rest;
}

static void insert_word(size_t at)
{
    size_t words = 0;
    while (sl_fuzz_dictionary[words])
        words++;
    if (!words)
        return;
    const char *word = sl_fuzz_dictionary[draw((uint32_t) words)];
    size_t length = strlen(word);
    size_t over = draw(2) ? 0 : length;
    replace(at, over < current_size - at ? over : current_size - at, (const uint8_t *) word, length);
}

static void insert_number(size_t at)
{
    static const char *const numbers[] = {"0",
                                          "-1",
                                          "1",
                                          "255",
                                          "65536",
                                          "2147483648",
                                          "4294967295",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551616",
                                          "1e308",
                                          "1e-308",
                                          "0.5",
                                          "-0"};
    const char *number = numbers[draw(sizeof numbers / sizeof *numbers)];
    replace(at, 0, (const uint8_t *) number, strlen(number));
}

/* Little-endian boundary values, for binary headers. */
static void write_integer(size_t at)
{
    static const uint64_t values[] = {0,
                                      1,
                                      0x7f,
                                      0xff,
                                      0x7fff,
                                      0xffff,
                                      0x7fffffff,
                                      0x80000000,
                                      0xffffffff,
                                      0x7fffffffffffffff,
                                      0x8000000000000000,
                                      0xffffffffffffffff};
    uint64_t value = values[draw(sizeof values / sizeof *values)] + draw(3) - 1;
    size_t width = (size_t) 1 << draw(4);
    for (size_t i = 0; i < width && at + i < current_size; i++)
        current[at + i] = (uint8_t) (value >> (8 * i));
}

static void splice_other(size_t at)
{
    const input *other = &inputs[draw((uint32_t) input_count)];
    size_t from = draw((uint32_t) other->size + 1), take = draw((uint32_t) (other->size - from) + 1);
    size_t remove = draw((uint32_t) (current_size - at) + 1);
    replace(at, draw(2) ? remove : 0, other->bytes + from, take);
}

static void duplicate(size_t at)
{
    uint8_t piece[256];
    size_t take = draw(sizeof piece);
    take = take < current_size - at ? take : current_size - at;
    memcpy(piece, current + at, take);
    for (uint32_t times = 1 + draw(8); times; times--)
        replace(at, 0, piece, take);
}

static void mutate_once(void)
{
    size_t at = draw((uint32_t) current_size + 1);
    bool inside = at < current_size;
    uint8_t byte = (uint8_t) draw(256);
    switch (draw(11)) {
    case 0:
    case 1:
        if (inside)
            current[at] ^= (uint8_t) (1u << draw(8));
        break;
    case 2:
        if (inside)
            current[at] = byte;
        break;
    case 3:
        replace(at, 0, &byte, 1);
        break;
    case 4:
        replace(at, inside ? 1 + draw((uint32_t) (current_size - at)) % 16 % (current_size - at) : 0, NULL, 0);
        break;
    case 5:
        if (draw(4) == 0)
            current_size = at; /* truncation */
        break;
    case 6:
        write_integer(at);
        break;
    case 7:
        insert_number(at);
        break;
    case 8:
        splice_other(at);
        break;
    case 9:
        duplicate(at);
        break;
    default:
        insert_word(at);
    }
}

/* ---- main ---- */

static void catch_crashes(void)
{
    static const int fatal[] = {SIGPROF, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    int count = (int) (sizeof fatal / sizeof *fatal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(save_input);
        count = 2; /* the rest is reported better by the sanitizer */
    }
    for (int i = 0; i < count; i++)
        signal(fatal[i], on_signal);
}

static bool load(const char *path)
{
    struct stat info;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode)) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    ssize_t got = read(fd, current, MOST_BYTES);
    close(fd);
    current_size = got > 0 ? (size_t) got : 0;
    return got >= 0;
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Sorted, so that the pool, and with it every draw, is the same on every machine. */
static int run_corpus(void)
{
    struct dirent **entries;
    int found = scandir(SL_FUZZ_CORPUS, &entries, NULL, compare_entries), ran = 0;
    for (int i = 0; i < found; i++) {
        char path[1024];
        snprintf(path, sizeof path, "%s/%s", SL_FUZZ_CORPUS, entries[i]->d_name);
        if (load(path)) {
            keep(current, current_size);
            run_current();
            ran++;
        }
        free(entries[i]);
    }
    if (found >= 0)
        free(entries);
    return ran;
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    double seconds = 1;
    int files = 0;
    target_name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    catch_crashes();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
            seconds = strtod(argv[++i], NULL);
        else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
            seed = strtoull(argv[++i], NULL, 10);
        else if (load(argv[i]))
            run_current(), files++;
        else
            return fprintf(stderr, "cannot read %s\n", argv[i]), 1;
    }
    if (files)
        return 0;
    int corpus = run_corpus();
    current_size = 0;
    keep(current, 0);
    run_current();
    long runs = 0;
    for (double end = now_s() + seconds; now_s() < end; runs++) {
        const input *base = &inputs[draw((uint32_t) input_count)];
        memcpy(current, base->bytes, base->size);
        current_size = base->size;
        for (uint32_t times = 1 + draw(6); times; times--)
            mutate_once();
        run_current();
    }
    printf("%s: %d seeds, %ld mutants, %zu inputs kept\n", target_name, corpus, runs, input_count);
    for (size_t i = 0; i < input_count; i++)
        free(inputs[i].bytes);
    return corpus > 0 || access(SL_FUZZ_CORPUS, F_OK) != 0 ? 0 : 1;
}
#endif
