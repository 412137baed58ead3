/* Edit distance with swaps of neighbours (Damerau, restricted), by three rows of the usual table. The beginning of a word counts as
 * one edit, however long the rest. */
#include "core/suggest.h"

#include <ctype.h>
#include <string.h>

#include "core/status.h"

enum { LONGEST = 64 }; /* longer words have no neighbours */

/* How many letters to insert, delete, replace or swap with their neighbour to get from a to b; case and _ against - are
 * free. Both are at most LONGEST long. */
static int edit_distance(const char *a, const char *b)
{
    int rows[3][LONGEST + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    int length_a = (int) strlen(a), length_b = (int) strlen(b);
    for (int j = 0; j <= length_b; j++)
        last[j] = j;
    char previous = 0;
    for (int i = 1; i <= length_a; i++) {
        char c = a[i - 1] == '_' ? '-' : (char) tolower((unsigned char) a[i - 1]);
        row[0] = i;
        for (int j = 1; j <= length_b; j++) {
            int best = last[j - 1] + (c != b[j - 1]);
            best = SL_MIN(best, SL_MIN(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && c == b[j - 2] && previous == b[j - 1])
                best = SL_MIN(best, before[j - 2] + 1);
            row[j] = best;
        }
        previous = c;
        int *free_row = before;
        before = last, last = row, row = free_row;
    }
    return last[length_b];
}

void sl_suggest(sl_suggestion *s, const char *known)
{
    size_t length = strlen(s->word);
    if (length > LONGEST || strlen(known) > LONGEST)
        return;
    int distance = edit_distance(s->word, known);
    if (length >= 3 && strncmp(known, s->word, length) == 0)
        distance = SL_MIN(distance, 1);
    if (!s->nearest || distance < s->distance) {
        s->nearest = known;
        s->distance = distance;
    }
}

/* Two edits, or one for every three letters; and not all of the word. */
const char *sl_suggested(const sl_suggestion *s)
{
    int length = (int) strlen(s->word);
    return s->nearest && s->distance <= SL_MAX(2, length / 3) && s->distance < length ? s->nearest : NULL;
}
