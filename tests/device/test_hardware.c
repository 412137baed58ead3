/* Hardware profiles: built-in ones, the machine we are on, files good and bad. */
#include "core/file.h"
#include "device/device.h"
#include "test.h"

TEST(built_in_profiles_make_sense)
{
    int64_t count;
    const char *const *names = sl_hardware_names(&count);
    for (int64_t i = 0; i < count; i++) {
        sl_hardware hw;
        CHECK_OK(sl_hardware_find(names[i], &hw));
        CHECK(hw.name[0] && hw.peak_flops[SL_F32] > 0 && hw.peak_flops[SL_BF16] >= hw.peak_flops[SL_F32]);
        for (int dtype = SL_F32; dtype <= SL_BF16; dtype++)
            CHECK(hw.matmul_efficiency[dtype] > 0 && hw.matmul_efficiency[dtype] <= 1);
        CHECK(hw.link_bandwidth_both <= SL_MIN(hw.link_bandwidth[0], hw.link_bandwidth[1]));
        for (int tier = 0; tier < SL_TIER_COUNT; tier++)
            CHECK(hw.memory_bytes[tier] > (size_t) 1 << 28 && hw.memory_bandwidth[tier] > 1e9);
        CHECK(!hw.shared_cores || strcmp(names[i], "this") == 0);
    }
}

TEST(a_file_says_the_same_as_what_was_written)
{
    sl_hardware hw, back;
    memset(&hw, 0, sizeof hw);
    memset(&back, 0, sizeof back);
    CHECK_OK(sl_hardware_find("this", &hw));
    hw.shared_cores = hw.attention_keeps_scores = true;
    CHECK_OK(sl_hardware_write(&hw, test_path("hw.json")));
    CHECK_OK(sl_hardware_find(test_path("hw.json"), &back));
    CHECK_STR(back.name, hw.name);
    CHECK(memcmp(back.peak_flops, hw.peak_flops, sizeof hw.peak_flops) == 0);
    CHECK(memcmp(back.memory_bytes, hw.memory_bytes, sizeof hw.memory_bytes) == 0);
    CHECK(memcmp(back.link_bandwidth, hw.link_bandwidth, sizeof hw.link_bandwidth) == 0);
    CHECK(back.host_optimizer_bandwidth == hw.host_optimizer_bandwidth);
    CHECK(back.shared_cores && back.attention_keeps_scores);
}

#define REST                                                                                                           \
    "\"host_memory_bytes\":\"16 "                                                                                      \
    "GiB\",\"peak_flops_f32\":1e12,\"peak_flops_bf16\":2e12,\"matmul_efficiency_f32\":0.5,\"matmul_efficiency_bf16\":" \
    "0.5,"                                                                                                             \
    "\"attention_forward_efficiency_f32\":0.5,\"attention_forward_efficiency_bf16\":0.5,\"attention_backward_"         \
    "efficiency_f32\":0.5,\"attention_backward_efficiency_bf16\":0.5,\"device_memory_bandwidth\":1e11,"                \
    "\"host_memory_bandwidth\":1e10,\"link_in_bandwidth\":1e10,\"link_out_bandwidth\":1e10,\"link_both_bandwidth\":"   \
    "9e9,"                                                                                                             \
    "\"link_latency_s\":1e-5,\"launch_latency_s\":1e-6,"

static sl_status parse(const char *text, sl_hardware *hw)
{
    return sl_hardware_parse("x.json", text, strlen(text), hw);
}

TEST(files_are_read_strictly)
{
    sl_hardware hw;
    CHECK_OK(parse("{\"device_memory_bytes\":8000000000," REST "\"host_optimizer_bandwidth\":1e10}", &hw));
    CHECK_U64(hw.memory_bytes[SL_TIER_DEVICE], 8000000000u);
    CHECK_U64(hw.memory_bytes[SL_TIER_HOST], (uint64_t) 16 << 30);
    CHECK(!hw.shared_cores && !hw.attention_keeps_scores);
    CHECK_FAILS(parse("{\"device_memory_bytes\":8000000000," REST "}", &hw), SL_E_FORMAT); /* a comma too many */
    CHECK_FAILS(parse("{\"device_memory_bytes\":8000000000," REST "\"shared_cores\":false}", &hw), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "host_optimizer_bandwidth");
    CHECK_FAILS(parse("{\"device_memory_bytes\":0," REST "\"host_optimizer_bandwidth\":1e10}", &hw), SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "x.json:1:");
    CHECK_FAILS(parse("{\"device_memory_bytes\":1.5," REST "\"host_optimizer_bandwidth\":1e10}", &hw), SL_E_FORMAT);
    CHECK_FAILS(parse("{\"device_memory_bytes\":\"lots\"," REST "\"host_optimizer_bandwidth\":1e10}", &hw),
                SL_E_FORMAT);
    CHECK_FAILS(parse("{\"device_memory_bytes\":1," REST "\"host_optimizer_bandwidth\":-1}", &hw), SL_E_FORMAT);
    CHECK_FAILS(parse("{\"device_memory_bytes\":1," REST "\"host_optimizer_bandwidth\":\"fast\"}", &hw), SL_E_FORMAT);
    CHECK_FAILS(parse("{\"device_memory_bytes\":1," REST "\"host_optimizer_bandwidth\":1,\"colour\":1}", &hw),
                SL_E_FORMAT);
    CHECK_CONTAINS(sl_error_message(), "colour");
    CHECK_FAILS(parse("{\"device_memory_bytes\":1," REST "\"host_optimizer_bandwidth\":1,\"name\":\"\"}", &hw),
                SL_E_FORMAT);
    CHECK_FAILS(parse("{\"device_memory_bytes\":1," REST "\"host_optimizer_bandwidth\":1,\"shared_cores\":1}", &hw),
                SL_E_FORMAT);
    CHECK_FAILS(parse("[]", &hw), SL_E_FORMAT);
    CHECK_FAILS(parse("", &hw), SL_E_FORMAT);
    CHECK_FAILS(sl_hardware_find("h900", &hw), SL_E_USAGE);
    CHECK_CONTAINS(sl_error_message(), "h200");
    CHECK_FAILS(sl_hardware_find(test_path("missing.json"), &hw), SL_E_IO);
}

TEST(devices_are_found_by_name)
{
    const sl_device_class *class;
    CHECK_OK(sl_device_find("cpu", &class));
    CHECK_STR(class->name, "cpu");
    CHECK_OK(sl_device_find("auto", &class));
    CHECK(strcmp(class->name, "sim") != 0);
    CHECK_FAILS(sl_device_find("abacus", &class), SL_E_USAGE);
    const sl_device_class *classes[SL_DEVICE_CLASSES];
    sl_device_classes(classes);
    for (int64_t i = 0; i < SL_DEVICE_CLASSES; i++)
        CHECK(!classes[i] || strcmp(classes[i]->name, sl_device_def_at(i)->name) == 0);
    sl_device_close(NULL);
}

/* Streams and links name each other, every tier has a stream that computes there, and its link back has the same wire. */
TEST(streams_and_links)
{
    for (int tier = 0; tier < SL_TIER_COUNT; tier++) {
        sl_stream stream = sl_stream_on((sl_tier) tier);
        REQUIRE(stream < SL_STREAM_COUNT);
        CHECK(!sl_stream_copies(stream) && sl_streams[stream].from == (sl_tier) tier &&
              sl_streams[stream].to == (sl_tier) tier);
        CHECK(sl_link_between((sl_tier) tier, (sl_tier) tier) == SL_LINK_COUNT);
    }
    for (int link = 0; link < SL_LINK_COUNT; link++) {
        const sl_link_def *def = &sl_links[link], *back = &sl_links[def->opposite];
        const sl_stream_def *stream = &sl_streams[def->stream];
        CHECK(sl_link_between(def->from, def->to) == (sl_link) link && def->from != def->to);
        CHECK(stream->link == (sl_link) link && stream->from == def->from && stream->to == def->to);
        CHECK(back->opposite == (sl_link) link && back->from == def->to && back->to == def->from);
    }
    for (int s = 0; s < SL_STREAM_COUNT; s++)
        CHECK(sl_stream_copies((sl_stream) s) == (sl_streams[s].from != sl_streams[s].to));
    CHECK(sl_stream_on(SL_TIER_DEVICE) == SL_STREAM_COMPUTE);
    CHECK(sl_link_between(SL_TIER_HOST, SL_TIER_DEVICE) == SL_LINK_IN);
}

int main(int argc, char **argv)
{
    test_begin(argc, argv);
    RUN(built_in_profiles_make_sense);
    RUN(a_file_says_the_same_as_what_was_written);
    RUN(files_are_read_strictly);
    RUN(devices_are_found_by_name);
    RUN(streams_and_links);
    return test_end();
}
