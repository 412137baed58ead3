/* Class folders: what lists them sorts them, so the same files have the same numbers on every machine. */
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "data/image/set_internal.h"

enum { MOST_DEPTH = 8 };

sl_status sl_image_set_path(char path[SL_IMAGE_PATH], const char *folder, const char *name)
{
    if (snprintf(path, SL_IMAGE_PATH, "%s%s%s", folder, folder[0] ? "/" : "", name) >= SL_IMAGE_PATH)
        return sl_fail(SL_E_FORMAT, "%s: a path is longer than %d bytes", folder, SL_IMAGE_PATH);
    return SL_OK;
}

/* The images below `folder`; `within` is its name from the class folder on. */
static sl_status add_files(sl_image_set *set, const char *folder, const char *within, int32_t label, int depth)
{
    sl_region *region;
    const char **names;
    int64_t count;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_dir_list(region, folder, &names, &count);
    for (int64_t i = 0; i < count && status == SL_OK; i++) {
        char path[SL_IMAGE_PATH], name[SL_IMAGE_PATH];
        sl_image_entry entry = {.label = label, .shard = -1};
        if (names[i][0] == '.')
            continue;
        SL_TRY_GOTO(sl_image_set_path(path, folder, names[i]), done);
        SL_TRY_GOTO(sl_image_set_path(name, within, names[i]), done);
        if (sl_image_set_is_image(names[i])) {
            SL_TRY_GOTO(sl_image_set_add_text(set, name, &entry.at), done);
            status = sl_image_set_add(set, &entry);
        } else if (depth < MOST_DEPTH && sl_dir_exists(path)) {
            status = add_files(set, path, name, label, depth + 1);
        }
    }
done:
    sl_region_destroy(region);
    return status;
}

/* Its number, or that of the training data's class with this name; the names are sorted. */
static sl_status label_of(const sl_image_set *classes, const char *path, const char *name, int32_t *label)
{
    for (int32_t i = 0; i < classes->n_folders; i++)
        if (strcmp(classes->folders[i], name) == 0) {
            *label = i;
            return SL_OK;
        }
    return sl_fail(SL_E_USAGE, "%s/%s is a class that the training data lacks", path, name);
}

sl_status sl_image_set_add_folder(sl_image_set *set, const char *path, const sl_image_set *classes)
{
    const char **names;
    int64_t count, folders = 0;
    SL_TRY(sl_region_strdup(set->region, path, &set->root));
    SL_TRY(sl_dir_list(set->region, path, &names, &count));
    for (int64_t i = 0; i < count; i++) {
        char folder[SL_IMAGE_PATH];
        SL_TRY(sl_image_set_path(folder, path, names[i]));
        if (names[i][0] != '.' && sl_dir_exists(folder))
            names[folders++] = names[i];
    }
    if (folders > SL_IMAGE_CLASSES)
        return sl_fail(SL_E_FORMAT, "%s holds more than %d classes", path, SL_IMAGE_CLASSES);
    set->folders = names;
    set->n_folders = (int32_t) folders;
    if (classes && classes->n_folders) { /* names by label are the training data's */
        set->n_folders = classes->n_folders;
        SL_TRY(sl_region_alloc(set->region, &set->folders, set->n_folders, sizeof *set->folders));
        for (int32_t i = 0; i < set->n_folders; i++)
            SL_TRY(sl_region_strdup(set->region, classes->folders[i], &set->folders[i]));
    }
    for (int64_t i = 0; i < folders; i++) {
        char folder[SL_IMAGE_PATH];
        int32_t label = (int32_t) i;
        int64_t before = set->count;
        if (classes && classes->n_folders)
            SL_TRY(label_of(classes, path, names[i], &label));
        SL_TRY(sl_image_set_path(folder, path, names[i]));
        SL_TRY(add_files(set, folder, "", label, 1));
        if (set->count == before)
            return sl_fail(SL_E_USAGE,
                           "%s holds no .jpg, .jpeg or .png files: remove the folder, or it would be a class "
                           "without images",
                           folder);
    }
    return SL_OK;
}
