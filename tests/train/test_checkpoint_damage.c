/* Damaged checkpoints are found, described and passed over; state.json is checked bit by bit and member by member. */
#include "checkpoint_fixture.h"
#include "core/fault.h"
#include "core/hash.h"

static void damage(const char *path, int64_t at, bool cut)
{
    char *bytes;
    size_t length;
    CHECK_OK(sl_file_read_all(path, 1 << 26, &bytes, &length));
    size_t place = at < 0 ? length - (size_t) -at : (size_t) at;
    bytes[place] = (char) (bytes[place] ^ 4);
    CHECK_OK(sl_file_write_atomic(path, bytes, cut ? place : length));
    sl_free(bytes);
}

TEST(damage_is_passed_over)
{
    static const char *const files[] = {"state.json", "config.json", "model.safetensors", "optimizer.safetensors"};
    test_expect_warnings(16, " is damaged: ");
    for (int i = 0; i < 4; i++)
        for (int how = 0; how < 4; how++) {
            fixture f;
            char name[64], path[128];
            snprintf(name, sizeof name, "damage-%d-%d", i, how);
            open_fixture(&f, "byte-test", SL_PRECISION_BF16, test_path(name));
            CHECK_OK(write_step(&f, 7));
            CHECK_OK(write_step(&f, 8));
            snprintf(path, sizeof path, "%s/checkpoints/step-00000008/%s", name, files[i]);
            if (how == 3)
                REQUIRE(unlink(test_path(path)) == 0);
            else
                damage(test_path(path), how == 0 ? 30 : -20, how == 2);
            expect(&f, 7);
            close_fixture(&f);
        }
}

/* Whatever changes in state.json is seen: any bit, and a text that is well-formed but another one. */
TEST(state_carries_its_own_checksum)
{
    static const struct {
        const char *from, *to;
    } edits[] = {{"\"step\":3", "\"step\":4"},
                 {"\"position\":12", "\"position\":13"},
                 {"\"updates\":2", "\"updates\":1"},
                 {"\"seed\":\"11\"", "\"seed\":\"12\""},
                 {"\"clipping\":\"0\"", "\"clipping\":\"1\""}};
    fixture f;
    char path[512], *text;
    size_t length;
    sl_checkpoint_state *state;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("state"));
    CHECK_OK(write_step(&f, 3));
    snprintf(path, sizeof path, "%s", test_path("state/checkpoints/step-00000003/state.json"));
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    CHECK_OK(sl_checkpoint_state_read(path, &state));
    sl_checkpoint_state_destroy(state);
    for (size_t i = 0; i < length; i++) {
        text[i] = (char) (text[i] ^ 1);
        put_file(path, text, length);
        CHECK_MSG(sl_checkpoint_state_read(path, &state) != SL_OK, "byte %zu of %zu may change", i, length);
        text[i] = (char) (text[i] ^ 1);
    }
    for (int64_t i = 0; i < SL_COUNT(edits); i++) {
        char *at = strstr(text, edits[i].from);
        REQUIRE(at != NULL && strlen(edits[i].from) == strlen(edits[i].to));
        memcpy(at, edits[i].to, strlen(edits[i].to));
        put_file(path, text, length);
        CHECK_FAILS(sl_checkpoint_state_read(path, &state), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), "checksum");
        memcpy(at, edits[i].from, strlen(edits[i].from));
    }
    sl_free(text);
    close_fixture(&f);
}

/* Replaces `from` by `to` in a state's text and gives it the checksum that goes with it. */
static void forge(const char *path, const char *original, const char *from, const char *to)
{
    sl_text text = {0};
    char sum[64];
    const char *at = strstr(original, from), *end = strstr(original, ",\"checksum\":");
    REQUIRE(at != NULL && end != NULL && at < end);
    sl_text_append(&text, original, (size_t) (at - original));
    sl_text_append(&text, to, strlen(to));
    sl_text_append(&text, at + strlen(from), (size_t) (end - at) - strlen(from));
    snprintf(sum, sizeof sum, ",\"checksum\":\"%016" PRIx64 "\"}\n", sl_hash64(text.data, text.length, 0));
    sl_text_append(&text, sum, strlen(sum));
    put_file(path, text.data, text.length);
    sl_text_free(&text);
}

/* Right by its checksum and wrong in itself: from another version, or by hand. */
TEST(state_is_checked_member_by_member)
{
    static const struct {
        const char *from, *to, *part;
    } faults[] = {
        {"\"sluice checkpoint\"", "\"sluice something\"", "is not the state of a Sluice checkpoint"},
        {"\"version\":2", "\"version\":3", "has version 3; this Sluice ("},
        {"\"step\":3", "\"step\":-3", "\"step\" is -3, but cannot be negative"},
        {"\"position\":12", "\"position\":-1", "\"position\" is -1"},
        {"\"updates\":2", "\"updates\":-2", "\"updates\" is -2"},
        {"\"updates\":2", "\"update\":2", "updates"},
        {"\"config.json\":", "\"config.toml\":", "does not tell size and hash of config.json"},
        {"\"optimizer.safetensors\":", "\"optimizer\":", "does not tell size and hash of optimizer.safetensors"},
        {"\"bytes\":", "\"byte\":", "bytes"},
        {"\"hash\":\"", "\"hash\":\"0", "is not a hash of 16 hexadecimal digits"},
        {"\"hash\":\"", "\"hash\":\"x\",\"was\":\"", "is not a hash of 16 hexadecimal digits"},
        {"\"run\":{", "\"ran\":{", "does not tell which run it belongs to"},
    };
    fixture f;
    char path[512], *text;
    size_t length;
    sl_checkpoint_state *state;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("forged"));
    CHECK_OK(write_step(&f, 3));
    snprintf(path, sizeof path, "%s", test_path("forged/checkpoints/step-00000003/state.json"));
    CHECK_OK(sl_file_read_all(path, 1 << 20, &text, &length));
    forge(path, text, "\"step\":3", "\"step\":3");
    CHECK_OK(sl_checkpoint_state_read(path, &state));
    sl_checkpoint_state_destroy(state);
    for (int64_t i = 0; i < SL_COUNT(faults); i++) {
        forge(path, text, faults[i].from, faults[i].to);
        CHECK_FAILS(sl_checkpoint_state_read(path, &state), SL_E_FORMAT);
        CHECK_CONTAINS(sl_error_message(), faults[i].part);
    }
    sl_free(text);
    close_fixture(&f);
}

/* What the log says of the newest one that is passed over for step 3. */
static void passes_over(fixture *f, const char *part)
{
    heard[0] = 0;
    sl_log_set(hear, NULL, SL_LOG_INFO);
    expect(f, 3);
    sl_log_set(test_on_log, NULL, SL_LOG_WARN);
    CHECK_CONTAINS(heard, part);
    CHECK_CONTAINS(heard, "; trying the one before");
}

TEST(damage_is_described)
{
    fixture f;
    char command[1200], *text;
    size_t length;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("described"));
    CHECK_OK(write_step(&f, 3));
    snprintf(command, sizeof command, "cd '%s' && cp -r step-00000003 step-00000004",
             test_path("described/checkpoints"));
    REQUIRE(system(command) == 0);
    passes_over(&f, "tells step 3, its folder step 4");
    CHECK_OK(write_step(&f, 4));
    const char *path = test_path("described/checkpoints/step-00000004/model.safetensors");
    CHECK_OK(sl_file_read_all(path, 1 << 26, &text, &length));
    put_file(path, text, length - 1);
    passes_over(&f, "bytes instead of ");
    text[length / 2] ^= 1;
    put_file(path, text, length);
    passes_over(&f, "does not have the content that state.json tells");
    sl_free(text);
    close_fixture(&f);
}

/* Damaged ones that are later than the one just written are no reason to remove an intact one. */
TEST(damage_takes_no_place)
{
    fixture f;
    test_expect_warnings(4, " is damaged: ");
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("passed"));
    CHECK_OK(write_step(&f, 9));
    CHECK_OK(write_step(&f, 10));
    damage(test_path("passed/checkpoints/step-00000009/model.safetensors"), 5000, false);
    damage(test_path("passed/checkpoints/step-00000010/model.safetensors"), 5000, false);
    CHECK_OK(write_step(&f, 6)); /* as a run does that was set back */
    expect(&f, 6);
    CHECK_OK(write_step(&f, 7));
    CHECK_OK(write_step(&f, 8));
    expect(&f, 8);
    CHECK(!sl_dir_exists(test_path("passed/checkpoints/step-00000006")));
    CHECK(sl_dir_exists(test_path("passed/checkpoints/step-00000007")));
    CHECK(sl_dir_exists(test_path("passed/checkpoints/step-00000010")));
    close_fixture(&f);
}

/* Without memory nothing can be said of a checkpoint: it is not damaged. */
TEST(no_memory_is_no_damage)
{
    fixture f;
    sl_checkpoint found;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("memory"));
    CHECK_OK(write_step(&f, 3));
    CHECK_OK(write_step(&f, 4));
    sl_status status = SL_E_MEMORY;
    int64_t n = 0;
    while (status == SL_E_MEMORY) {
        sl_fault_arm(SL_FAULT_ALLOC, ++n);
        status = sl_checkpoint_find(&f.memory.store, &f.identity, &found);
    }
    sl_fault_arm(SL_FAULT_ALLOC, 0);
    CHECK(status == SL_OK && n > 3);
    CHECK_I64(found.progress.step, 4);
    close_fixture(&f);
}

/* Whatever else lies there is no checkpoint, and stays. */
TEST(other_folders_are_none)
{
    static const char *const others[] = {"notes", "step-", "step-1", "step-00000001.old", "step--0000001", "step-x"};
    fixture f;
    int64_t step;
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("others"));
    for (int64_t i = 0; i < SL_COUNT(others); i++) {
        char path[100];
        snprintf(path, sizeof path, "others/checkpoints/%s", others[i]);
        CHECK_OK(sl_dir_create(test_path(path)));
        CHECK_OK(sl_checkpoint_newest(test_path("others"), &step));
        CHECK_I64(step, -1);
        expect(&f, -1);
        CHECK(sl_dir_exists(test_path(path)));
    }
    close_fixture(&f);
}

TEST(none_intact_is_an_error)
{
    fixture f;
    sl_checkpoint found;
    test_expect_warnings(1, " is damaged: ");
    open_fixture(&f, "byte-test", SL_PRECISION_F32, test_path("ruined"));
    CHECK_OK(write_step(&f, 3));
    damage(test_path("ruined/checkpoints/step-00000003/model.safetensors"), 5000, false);
    CHECK_FAILS(sl_checkpoint_find(&f.memory.store, &f.identity, &found), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "none is intact");
    close_fixture(&f);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(damage_is_passed_over);
    RUN(state_carries_its_own_checksum);
    RUN(state_is_checked_member_by_member);
    RUN(damage_is_described);
    RUN(damage_takes_no_place);
    RUN(no_memory_is_no_damage);
    RUN(other_folders_are_none);
    RUN(none_intact_is_an_error);
    return test_end();
}
