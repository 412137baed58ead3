/* Pre-tokenizers of tokenizer.json as stages. ByteLevel itself splits nothing but by its pattern: the bytes of a piece are what BPE
 * reads, and the 256 characters that stand for bytes in the file are turned back into bytes when it is read. */
#include <string.h>

#include "text/components.h"
#include "text/unicode.h"

static sl_status new_stage(sl_tokenizer *t, const char *name, sl_cut stage)
{
    if (t->n_stages == SL_MOST_COMPONENTS)
        return sl_part_too_many(name, "pre-tokenizer");
    t->stages[t->n_stages++] = stage;
    return SL_OK;
}

sl_status sl_add_pattern(sl_tokenizer *t, const char *name, const char *pattern, size_t length, sl_behavior behavior,
                         bool invert)
{
    sl_cut stage = {.kind = SL_STAGE_LEXER, .behavior = behavior, .invert = invert};
    stage.lexer = sl_lexer_find(pattern, length);
    if (!stage.lexer) {
        stage.kind = SL_STAGE_REGEX;
        sl_status status = sl_regex_create(pattern, length, &stage.regex);
        if (status != SL_OK)
            return sl_fail_at(status, "%s", name);
    }
    sl_status status = new_stage(t, name, stage);
    if (status != SL_OK)
        sl_regex_destroy(stage.regex);
    return status;
}

static sl_status read_behavior(const char *name, const sl_json *part, sl_behavior otherwise, sl_behavior *behavior)
{
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    const char *text;
    SL_TRY(sl_json_string_or(name, part, "behavior", names[otherwise], &text));
    for (int i = 0; i < 5; i++) {
        if (strcmp(text, names[i]) == 0) {
            *behavior = (sl_behavior) i;
            return SL_OK;
        }
    }
    return sl_fail(SL_E_UNSUPPORTED, "%s:%d:%d: the behavior \"%.60s\" is not known here", name, part->line,
                   part->column, text);
}

static sl_status read_split(sl_tokenizer *t, const char *name, const sl_json *part)
{
    const char *pattern;
    size_t length;
    bool regex, invert;
    sl_behavior behavior;
    SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type,pattern,behavior,invert"));
    SL_TRY(sl_part_pattern(t, name, part, &pattern, &length, &regex));
    SL_TRY(read_behavior(name, part, SL_ISOLATED, &behavior));
    SL_TRY(sl_json_bool_or(name, part, "invert", false, &invert));
    if (!length)
        return SL_OK; /* the empty text splits nothing */
    if (regex)
        return sl_add_pattern(t, name, pattern, length, behavior, invert);
    return new_stage(
        t, name,
        (sl_cut){.kind = SL_STAGE_STRING, .behavior = behavior, .invert = invert, .string = pattern, .length = length});
}

static sl_status read_byte_level(sl_tokenizer *t, const char *name, const sl_json *part)
{
    bool prefix, regex;
    SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type,add_prefix_space,trim_offsets,use_regex"));
    SL_TRY(sl_json_bool_or(name, part, "add_prefix_space", true, &prefix));
    SL_TRY(sl_json_bool_or(name, part, "use_regex", true, &regex));
    t->bpe.byte_level = true;
    if (prefix)
        SL_TRY(new_stage(t, name, (sl_cut){.kind = SL_STAGE_SPACE}));
    return regex ? sl_add_pattern(t, name, sl_pattern_gpt2, strlen(sl_pattern_gpt2), SL_ISOLATED, false) : SL_OK;
}

/* Files before tokenizers 0.15 have add_prefix_space instead of prepend_scheme. */
static sl_status read_metaspace(sl_tokenizer *t, const char *name, const sl_json *part)
{
    sl_cut stage = {.kind = SL_STAGE_REPLACE};
    const char *scheme;
    bool prefix, split;
    SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type,replacement,prepend_scheme,split,add_prefix_space,str_rep"));
    SL_TRY(sl_part_string(t, name, part, "replacement", &stage.string, &stage.length));
    SL_TRY(sl_json_bool_or(name, part, "add_prefix_space", true, &prefix));
    SL_TRY(sl_json_bool_or(name, part, "split", true, &split));
    SL_TRY(sl_json_string_or(name, part, "prepend_scheme", prefix ? "always" : "never", &scheme));
    if (strcmp(scheme, "always") == 0)
        stage.prepend = SL_PREPEND_ALWAYS;
    else if (strcmp(scheme, "first") == 0)
        stage.prepend = SL_PREPEND_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s:%d:%d: the prepend_scheme \"%.60s\" is not known here", name, part->line,
                       part->column, scheme);
    if (!stage.length || (size_t) sl_utf8_length(stage.string, stage.string + stage.length) != stage.length)
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: \"replacement\" should be one character", name, part->line,
                       part->column);
    SL_TRY(new_stage(t, name, stage));
    if (!split)
        return SL_OK;
    stage.kind = SL_STAGE_STRING;
    stage.behavior = SL_MERGED_WITH_NEXT;
    return new_stage(t, name, stage);
}

static sl_status read_simple(sl_tokenizer *t, const char *name, const sl_json *part, const char *type, bool *known)
{
    sl_cut stage = {.kind = SL_STAGE_CLASS, .behavior = SL_ISOLATED};
    *known = true;
    if (strcmp(type, "Digits") == 0) {
        SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type,individual_digits"));
        SL_TRY(sl_json_bool_or(name, part, "individual_digits", false, &stage.single));
        stage.set = SL_SET_N;
    } else if (strcmp(type, "Punctuation") == 0) {
        SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type,behavior"));
        SL_TRY(read_behavior(name, part, SL_ISOLATED, &stage.behavior));
        stage.set = SL_SET_P;
        stage.single = true;
    } else if (strcmp(type, "WhitespaceSplit") == 0) {
        SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type"));
        stage.set = SL_SET_SPACE;
        stage.behavior = SL_REMOVED;
    } else if (strcmp(type, "Whitespace") == 0) {
        SL_TRY(sl_part_keys(name, "pre-tokenizer", part, "type"));
        stage.kind = SL_STAGE_WORDS;
        stage.behavior = SL_REMOVED;
        stage.invert = true;
    } else {
        *known = false;
        return SL_OK;
    }
    return new_stage(t, name, stage);
}

sl_status sl_read_pre_tokenizer(sl_tokenizer *t, const char *name, const sl_json *part)
{
    const char *type;
    bool known;
    SL_TRY(sl_part_type(name, "pre-tokenizer", part, &type));
    if (t->bpe.byte_level)
        return sl_fail(SL_E_UNSUPPORTED,
                       "%s:%d:%d: the pre-tokenizer %.60s behind ByteLevel; ByteLevel has to be the last one", name,
                       part->line, part->column, type);
    if (strcmp(type, "Sequence") == 0)
        return sl_part_sequence(t, name, "pre-tokenizer", part, "pretokenizers", sl_read_pre_tokenizer);
    if (strcmp(type, "Split") == 0)
        return read_split(t, name, part);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, name, part);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, name, part);
    SL_TRY(read_simple(t, name, part, type, &known));
    if (known)
        return SL_OK;
    return sl_part_unknown(
        name, "pre-tokenizer", part, type,
        "Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, WhitespaceSplit and Sequence");
}
