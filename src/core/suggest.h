/* The word that was probably meant by one that is not known: the nearest of the known ones, if it is near.
 *
 *     sl_suggestion s = {.word = "trian"};
 *     for each known name: sl_suggest(&s, name);
 *     const char *meant = sl_suggested(&s);
 */
#ifndef SL_CORE_SUGGEST_H
#define SL_CORE_SUGGEST_H

typedef struct sl_suggestion {
    const char *word, *nearest;
    int distance; /* from word to nearest */
} sl_suggestion;

/* Considers one known word, which must live as long as the suggestion. */
void sl_suggest(sl_suggestion *suggestion, const char *known);
/* NULL: nothing is near. */
const char *sl_suggested(const sl_suggestion *suggestion);

#endif
