/* Models by their names on Hugging Face, from caches laid out as its tools do: links into blobs, references, several revisions; and
 * what is said where a model is not there. */
#include <stdlib.h>
#include <unistd.h>

#include "core/file.h"
#include "model/model.h"
#include "test.h"

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME", "HOME"};
static const char model_json[] =
    "{\"model_type\": \"llama\", \"hidden_size\": 32, \"intermediate_size\": 64, \"num_hidden_layers\": %d, "
    "\"num_attention_heads\": 2, \"num_key_value_heads\": 2, \"vocab_size\": 64, \"rms_norm_eps\": 1e-5}";

static const char *at(const char *cache, const char *rest)
{
    static char out[4][600];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(out[turn], sizeof out[turn], "%s/%s", test_path(cache), rest);
    return out[turn];
}

static void put(const char *path, const char *text)
{
    char folder[600];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    CHECK_OK(sl_dir_create(folder));
    CHECK_OK(sl_file_write_atomic(path, text, strlen(text)));
}

/* A model of so many layers at a commit: its config.json is a link to a blob. */
static void put_model(const char *cache, const char *commit, int layers)
{
    char text[400], blob[64], rest[128], link[128];
    snprintf(text, sizeof text, model_json, layers);
    snprintf(blob, sizeof blob, "models--acme--tiny-1.5/blobs/%d", layers);
    put(at(cache, blob), text);
    snprintf(rest, sizeof rest, "models--acme--tiny-1.5/snapshots/%s", commit);
    CHECK_OK(sl_dir_create(at(cache, rest)));
    snprintf(rest, sizeof rest, "models--acme--tiny-1.5/snapshots/%s/config.json", commit);
    snprintf(link, sizeof link, "../../blobs/%d", layers);
    REQUIRE(symlink(link, at(cache, rest)) == 0);
}

static void only(const char *variable, const char *value)
{
    for (int64_t i = 0; i < SL_COUNT(variables); i++)
        unsetenv(variables[i]);
    if (variable)
        setenv(variable, value, 1);
}

static int64_t layers_of(const char *name)
{
    sl_model model;
    sl_status status = sl_model_find(name, &model);
    CHECK_MSG(status == SL_OK, "%s: %s", name, status == SL_OK ? "" : sl_error_message());
    return status == SL_OK ? model.layers : -1;
}

static void refused(const char *name, sl_status want, const char *part)
{
    sl_model model;
    CHECK_FAILS(sl_model_find(name, &model), want);
    CHECK_CONTAINS(sl_error_message(), part);
}

TEST(revisions)
{
    char path[SL_MODEL_PATH_BYTES];
    put_model("cache", "abc123", 3);
    put_model("cache", "def456", 5);
    put(at("cache", "models--acme--tiny-1.5/refs/main"), "abc123");
    put(at("cache", "models--acme--tiny-1.5/refs/v2"), "def456\n");
    only("HF_HUB_CACHE", test_path("cache"));
    CHECK_I64(layers_of("acme/tiny-1.5"), 3);
    CHECK_I64(layers_of("acme/tiny-1.5@main"), 3);
    CHECK_I64(layers_of("acme/tiny-1.5@v2"), 5);
    CHECK_I64(layers_of("acme/tiny-1.5@def456"), 5);
    CHECK_OK(sl_model_locate("acme/tiny-1.5", path));
    CHECK_STR(path, at("cache", "models--acme--tiny-1.5/snapshots/abc123"));
    refused("acme/tiny-1.5@v3", SL_E_USAGE, "hf download acme/tiny-1.5 --revision v3");
    put(at("cache", "models--acme--tiny-1.5/refs/gone"), "777");
    refused("acme/tiny-1.5@gone", SL_E_USAGE, "snapshots/777");
    put(at("cache", "models--acme--tiny-1.5/refs/evil"), "../../..");
    refused("acme/tiny-1.5@evil", SL_E_FORMAT, "commit");
    put(at("cache", "models--acme--tiny-1.5/refs/empty"), "\n");
    refused("acme/tiny-1.5@empty", SL_E_FORMAT, "commit");
}

/* The first variable that is set names the cache, and no other is looked at. */
TEST(places)
{
    static const char *const below[] = {"", "", "/hub", "/huggingface/hub", "/.cache/huggingface/hub"};
    for (int64_t i = 0; i < SL_COUNT(variables); i++) {
        char cache[100], root[32];
        snprintf(root, sizeof root, "root%lld", (long long) i);
        snprintf(cache, sizeof cache, "%s%s", root, below[i]);
        put_model(cache, "one", 2 + (int) i);
        put(at(cache, "models--acme--tiny-1.5/refs/main"), "one");
        only(variables[i], test_path(root));
        CHECK_I64(layers_of("acme/tiny-1.5"), 2 + i);
    }
    for (int64_t i = SL_COUNT(variables) - 1; i >= 0; i--) { /* each goes before those after it */
        char root[32];
        snprintf(root, sizeof root, "root%lld", (long long) i);
        setenv(variables[i], test_path(root), 1);
        CHECK_I64(layers_of("acme/tiny-1.5"), 2 + i);
    }
    setenv("HF_HUB_CACHE", test_path("nowhere"), 1);
    refused("acme/tiny-1.5", SL_E_USAGE, "nowhere/models--acme--tiny-1.5");
    setenv("HF_HUB_CACHE", "", 1); /* as if it were not set */
    setenv("HUGGINGFACE_HUB_CACHE", test_path("root1"), 1);
    CHECK_I64(layers_of("acme/tiny-1.5"), 3);
}

TEST(what_is_said)
{
    char here[4096];
    only("HF_HUB_CACHE", test_path("cache"));
    refused("acme/other", SL_E_USAGE, "hf download acme/other");
    CHECK_CONTAINS(sl_error_message(), "cache/models--acme--other");
    CHECK_CONTAINS(sl_error_message(), "nothing is downloaded");
    refused("acme/../x", SL_E_USAGE, "neither a preset");
    refused("a/b/c", SL_E_USAGE, "neither a preset");
    refused("acme/", SL_E_USAGE, "neither a preset");
    refused("/acme", SL_E_USAGE, "neither a preset");
    refused("acme/x@", SL_E_USAGE, "neither a preset");
    refused("acme/..", SL_E_USAGE, "neither a preset");
    only(NULL, NULL);
    refused("acme/tiny-1.5", SL_E_USAGE, "neither HF_HOME nor HOME is set");
    /* A folder of that name goes first. */
    only("HF_HUB_CACHE", test_path("cache"));
    char text[400];
    snprintf(text, sizeof text, model_json, 11);
    put(test_path("work/acme/tiny-1.5/config.json"), text);
    REQUIRE(getcwd(here, sizeof here) != NULL && chdir(test_path("work")) == 0);
    CHECK_I64(layers_of("acme/tiny-1.5"), 11);
    REQUIRE(chdir(here) == 0);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(revisions);
    RUN(places);
    RUN(what_is_said);
    return test_end();
}
