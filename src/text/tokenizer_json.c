/* tokenizer.json, as Hugging Face's tokenizers write it. `truncation` and `padding` shape batches and are left aside: a text is never
 * cut here. Everything else that changes ids is followed or refused by name. */
#include <string.h>

#include "text/components.h"

static sl_status read_vocab(sl_tokenizer *t, const char *name, const sl_json *vocab)
{
    if (!vocab || vocab->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: a BPE model should have an object \"vocab\"", name);
    for (const sl_json *token = vocab->child; token; token = token->next) {
        if (token->kind != SL_JSON_NUMBER || !token->is_integer)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: the id of \"%.40s\" should be a whole number", name, token->line,
                           token->column, token->key);
        sl_status status = sl_vocab_add(&t->bpe.vocab, token->integer, token->key, strlen(token->key));
        if (status != SL_OK)
            return sl_fail_at(status, "%s:%d:%d", name, token->line, token->column);
    }
    return SL_OK;
}

/* "a b" or ["a", "b"]. */
static sl_status merge_parts(const char *name, const sl_json *merge, const char *part[2], size_t length[2])
{
    if (merge->kind == SL_JSON_STRING) {
        const char *space = memchr(merge->string, ' ', merge->length);
        if (space && !memchr(space + 1, ' ', (size_t) (merge->string + merge->length - space - 1))) {
            part[0] = merge->string, length[0] = (size_t) (space - merge->string);
            part[1] = space + 1, length[1] = merge->length - length[0] - 1;
            return SL_OK;
        }
    } else if (merge->kind == SL_JSON_ARRAY && merge->count == 2 && merge->child->kind == SL_JSON_STRING &&
               merge->child->next->kind == SL_JSON_STRING) {
        part[0] = merge->child->string, length[0] = merge->child->length;
        part[1] = merge->child->next->string, length[1] = merge->child->next->length;
        return SL_OK;
    }
    return sl_fail(SL_E_FORMAT, "%s:%d:%d: a merge should be \"a b\" or [\"a\", \"b\"]", name, merge->line,
                   merge->column);
}

static sl_status read_merge(sl_tokenizer *t, const char *name, const sl_json *merge, uint32_t rank, sl_text *joined)
{
    const char *part[2] = {NULL, NULL};
    size_t length[2] = {0, 0};
    int32_t id[3];
    SL_TRY(merge_parts(name, merge, part, length));
    joined->length = 0;
    sl_text_append(joined, part[0], length[0]);
    sl_text_append(joined, part[1], length[1]);
    SL_TRY(sl_text_status(joined));
    id[0] = sl_vocab_find(&t->bpe.vocab, part[0], length[0]);
    id[1] = sl_vocab_find(&t->bpe.vocab, part[1], length[1]);
    id[2] = sl_vocab_find(&t->bpe.vocab, joined->data, joined->length);
    for (int i = 0; i < 3; i++) {
        if (id[i] < 0)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: the merge names \"%.60s\", which the vocabulary lacks", name,
                           merge->line, merge->column, i < 2 ? part[i] : joined->data);
    }
    if (!length[0] || !length[1])
        return sl_fail(SL_E_FORMAT, "%s:%d:%d: a merge with the empty text", name, merge->line, merge->column);
    return sl_bpe_add_merge(&t->bpe, id[0], id[1], id[2], rank);
}

static sl_status read_merges(sl_tokenizer *t, const char *name, const sl_json *merges)
{
    sl_text joined = {0};
    uint32_t rank = 0;
    sl_status status = SL_OK;
    if (!merges || merges->kind != SL_JSON_ARRAY)
        return sl_fail(SL_E_FORMAT, "%s: a BPE model should have an array \"merges\"", name);
    for (const sl_json *merge = merges->child; merge && status == SL_OK; merge = merge->next)
        status = read_merge(t, name, merge, rank++, &joined);
    sl_text_free(&joined);
    return status;
}

/* Both are null or "" where a vocabulary has none. */
static sl_status refuse_affix(const char *name, const sl_json *model, const char *key)
{
    const char *affix;
    SL_TRY(sl_json_string_or(name, model, key, "", &affix));
    return affix[0] ? sl_fail(SL_E_UNSUPPORTED, "%s: \"%s\" is \"%.40s\"; only vocabularies without are known here",
                              name, key, affix)
                    : SL_OK;
}

static sl_status read_model(sl_tokenizer *t, const char *name, const sl_json *model)
{
    const char *type, *unk;
    double dropout;
    if (!model || model->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: there is no object \"model\": is it a tokenizer.json?", name);
    SL_TRY(sl_json_string_or(name, model, "type", sl_json_get(model, "merges") ? "BPE" : "", &type));
    if (strcmp(type, "BPE") != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: the model is of the type \"%.40s\"; only BPE is known here", name, type);
    SL_TRY(sl_part_keys(name, "BPE model", model,
                        "type,dropout,unk_token,continuing_subword_prefix,end_of_word_suffix,fuse_unk,byte_fallback,"
                        "ignore_merges,vocab,merges"));
    SL_TRY(sl_json_f64_or(name, model, "dropout", 0, &dropout));
    if (dropout != 0)
        return sl_fail(SL_E_UNSUPPORTED, "%s: \"dropout\" is %g: it makes ids random, set it to null", name, dropout);
    SL_TRY(refuse_affix(name, model, "continuing_subword_prefix"));
    SL_TRY(refuse_affix(name, model, "end_of_word_suffix"));
    SL_TRY(sl_json_bool_or(name, model, "fuse_unk", false, &t->bpe.fuse_unk));
    SL_TRY(sl_json_bool_or(name, model, "byte_fallback", false, &t->bpe.byte_fallback));
    SL_TRY(sl_json_bool_or(name, model, "ignore_merges", false, &t->bpe.ignore_merges));
    SL_TRY(sl_json_string_or(name, model, "unk_token", NULL, &unk));
    SL_TRY(read_vocab(t, name, sl_json_get(model, "vocab")));
    if (unk && (t->bpe.unk = sl_vocab_find(&t->bpe.vocab, unk, strlen(unk))) < 0)
        return sl_fail(SL_E_FORMAT, "%s: \"unk_token\" is \"%.40s\", which the vocabulary lacks", name, unk);
    return read_merges(t, name, sl_json_get(model, "merges"));
}

static sl_status read_added(sl_tokenizer *t, const char *name, const sl_json *list)
{
    if (!list)
        return SL_OK;
    if (list->kind != SL_JSON_ARRAY)
        return sl_fail(SL_E_FORMAT, "%s: \"added_tokens\" should be an array", name);
    for (const sl_json *item = list->child; item; item = item->next) {
        sl_added token = {.id = -1};
        int64_t id;
        const sl_json *content = sl_json_get(item, "content");
        if (!content || content->kind != SL_JSON_STRING)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: an added token should have \"id\" and \"content\"", name, item->line,
                           item->column);
        SL_TRY(sl_part_keys(name, "added token", item, "id,content,single_word,lstrip,rstrip,normalized,special"));
        SL_TRY(sl_json_i64(name, item, "id", &id));
        SL_TRY(sl_json_bool_or(name, item, "single_word", false, &token.single_word));
        SL_TRY(sl_json_bool_or(name, item, "lstrip", false, &token.left));
        SL_TRY(sl_json_bool_or(name, item, "rstrip", false, &token.right));
        SL_TRY(sl_json_bool_or(name, item, "special", false, &token.special));
        SL_TRY(sl_json_bool_or(name, item, "normalized", !token.special, &token.normalized));
        if (id < 0 || id > INT32_MAX)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: an added token with the id %lld", name, item->line, item->column,
                           (long long) id);
        token.id = (int32_t) id;
        token.content = content->string, token.length = content->length;
        sl_status status = sl_add_token(t, &token);
        if (status != SL_OK)
            return sl_fail_at(status, "%s:%d:%d", name, item->line, item->column);
    }
    return SL_OK;
}

/* A part that is absent or null does nothing. */
static sl_status read_part(sl_tokenizer *t, const char *name, const sl_json *root, const char *key, sl_part_fn read)
{
    const sl_json *part = sl_json_get(root, key);
    return part && part->kind != SL_JSON_NULL ? read(t, name, part) : SL_OK;
}

static sl_status read_root(sl_tokenizer *t, const char *name, const sl_json *root)
{
    if (root->kind != SL_JSON_OBJECT)
        return sl_fail(SL_E_FORMAT, "%s: a tokenizer.json should hold an object", name);
    SL_TRY(
        sl_part_keys(name, "tokenizer", root,
                     "version,truncation,padding,added_tokens,normalizer,pre_tokenizer,post_processor,decoder,model"));
    SL_TRY(read_part(t, name, root, "normalizer", sl_read_normalizer));
    SL_TRY(read_part(t, name, root, "pre_tokenizer", sl_read_pre_tokenizer));
    SL_TRY(read_part(t, name, root, "decoder", sl_read_decoder));
    SL_TRY(read_model(t, name, sl_json_get(root, "model")));
    SL_TRY(read_added(t, name, sl_json_get(root, "added_tokens")));
    return read_part(t, name, root, "post_processor", sl_read_post_processor);
}

sl_status sl_tokenizer_read_json(sl_tokenizer *t, const char *name, const char *text, size_t length)
{
    sl_region *region;
    const sl_json *root;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, name, text, length, &root);
    if (status == SL_OK)
        status = read_root(t, name, root);
    sl_region_destroy(region);
    return status;
}

/* ---- tokenizer_config.json ---- */

/* A string, or an object that holds one as "content". */
static int32_t token_of(const sl_tokenizer *t, const sl_json *config, const char *key)
{
    const sl_json *value = sl_json_get(config, key);
    if (value && value->kind == SL_JSON_OBJECT)
        value = sl_json_get(value, "content");
    return value && value->kind == SL_JSON_STRING ? sl_vocab_find(&t->bpe.vocab, value->string, value->length) : -1;
}

/* Formats without added tokens of their own take them from here: {"128000": {"content": ..., "special": true, ...}, ...}. */
static sl_status read_config_tokens(sl_tokenizer *t, const char *name, const sl_json *tokens)
{
    for (const sl_json *item = tokens ? tokens->child : NULL; item; item = item->next) {
        const sl_json *content = sl_json_get(item, "content");
        sl_added token = {.id = -1};
        int64_t id;
        if (!content || content->kind != SL_JSON_STRING || sl_parse_i64(item->key, &id) != SL_OK || id < 0 ||
            id > INT32_MAX)
            return sl_fail(SL_E_FORMAT, "%s:%d:%d: added_tokens_decoder should hold ids with \"content\"", name,
                           item->line, item->column);
        SL_TRY(sl_json_bool_or(name, item, "single_word", false, &token.single_word));
        SL_TRY(sl_json_bool_or(name, item, "lstrip", false, &token.left));
        SL_TRY(sl_json_bool_or(name, item, "rstrip", false, &token.right));
        SL_TRY(sl_json_bool_or(name, item, "special", false, &token.special));
        token.id = (int32_t) id;
        token.content = content->string, token.length = content->length;
        SL_TRY(sl_add_token(t, &token));
    }
    return SL_OK;
}

sl_status sl_tokenizer_read_config(sl_tokenizer *t, const char *name, const char *text, size_t length)
{
    sl_region *region;
    const sl_json *root;
    SL_TRY(sl_region_create(&region));
    sl_status status = sl_json_parse(region, name, text, length, &root);
    if (status == SL_OK && t->n_added == 0)
        status = read_config_tokens(t, name, sl_json_get(root, "added_tokens_decoder"));
    if (status == SL_OK) {
        t->bos = token_of(t, root, "bos_token");
        t->eos = token_of(t, root, "eos_token");
    }
    sl_region_destroy(region);
    return status;
}
