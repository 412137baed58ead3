/* What the codecs share: how they fail. */
#include "data/codec.h"

sl_status sl_codec_block_failed(const sl_codec *codec, const char *why, size_t made, size_t wanted)
{
    if (why)
        return sl_fail(SL_E_FORMAT, "damaged %s data: %s", codec->name, why);
    return sl_fail(SL_E_FORMAT, "damaged %s data: a block that should hold %zu bytes holds %s%zu", codec->name, wanted,
                   made > wanted ? "at least " : "", made);
}

sl_status sl_codec_missing(const char *what, const char *library, const char *package)
{
    return sl_fail(
        SL_E_UNSUPPORTED,
        "%s needs %s, which this build of Sluice is without: install %s (as Debian calls it) and build again", what,
        library, package);
}
