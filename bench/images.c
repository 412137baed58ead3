/* Times files to normalized tensors on one thread, as read from standard input: bench/peers/images_torch.py writes the requests, so
 * that our time and torchvision's are measured in turn, in one run. Built by bench/images.sh.
 *
 * A request is a line "RECIPE SIZE SCALED PASS FILE..." with recipe train, three or validation; the answer is seconds of processor time
 * for all files, read from their files and written as f32. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "image/transform.h"

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

static sl_status one_file(sl_image_worker *worker, const char *path, const sl_draws *draws, int64_t size,
                          unsigned char *planes, float *out)
{
    char *bytes;
    size_t length;
    SL_TRY(sl_file_read_all(path, 1 << 28, &bytes, &length));
    sl_status status = sl_image_sample(worker, bytes, length, draws, planes);
    sl_free(bytes);
    SL_TRY(status);
    sl_image_normalize(&sl_imagenet_norm, planes, size * size, out);
    return SL_OK;
}

static sl_status answer(char *line)
{
    char *name = strtok(line, " \n"), *size_text = strtok(NULL, " \n"), *scaled = strtok(NULL, " \n"),
         *pass = strtok(NULL, " \n");
    if (!pass)
        return sl_fail(SL_E_USAGE, "a request is RECIPE SIZE SCALED PASS FILE...");
    int64_t size = strtol(size_text, NULL, 10);
    sl_image_recipe recipe = sl_image_recipe_default(size, strcmp(name, "validation") != 0);
    recipe.crop_ratio = 0.875;
    recipe.scaled_decoding = scaled[0] == '1';
    recipe.three_augment = strcmp(name, "three") == 0;
    for (int i = 0; i < 3; i++)
        recipe.jitter[i] = recipe.three_augment ? 0.3 : 0;
    sl_image_worker *worker;
    unsigned char *planes;
    float *out;
    SL_TRY(sl_image_worker_create(&recipe, &worker));
    SL_TRY(sl_alloc(&planes, size * size, 3));
    SL_TRY(sl_alloc(&out, size * size, 3 * sizeof(float)));
    double begin = cpu_seconds();
    uint64_t place = 0;
    for (char *path = strtok(NULL, " \n"); path; path = strtok(NULL, " \n"), place++) {
        sl_draws draws = sl_draws_of(1, strtoull(pass, NULL, 10), place);
        SL_TRY(one_file(worker, path, &draws, size, planes, out));
    }
    printf("%.9f\n", cpu_seconds() - begin);
    sl_image_worker_destroy(worker);
    sl_free(planes);
    sl_free(out);
    return SL_OK;
}

int main(void)
{
    static char line[1 << 20];
    while (fgets(line, sizeof line, stdin)) {
        if (answer(line) != SL_OK) {
            fprintf(stderr, "%s\n", sl_error_message());
            return 1;
        }
        fflush(stdout);
    }
    return 0;
}
