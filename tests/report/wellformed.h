/* Is a page well formed? Pages are written so that they are XML too (every element is closed, every attribute quoted), which is
 * easier to check than HTML and never wrong in a browser. Script and style hold no "<" or "&" and are checked like the rest. */
#ifndef SL_TESTS_REPORT_WELLFORMED_H
#define SL_TESTS_REPORT_WELLFORMED_H

#include <ctype.h>

#include "test.h"

static inline bool wellformed_entity(const char *at)
{
    static const char *const known[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
    for (int64_t i = 0; i < SL_COUNT(known); i++)
        if (strncmp(at, known[i], strlen(known[i])) == 0)
            return true;
    return false;
}

/* An explanation, or NULL when all is well. */
static inline const char *wellformed(const char *text)
{
    static char stack[64][32], why[256];
    int depth = 0;
    const char *at = text;
    if (strncmp(at, "<!DOCTYPE html>", 15) == 0)
        at += 15;
    for (; *at; at++) {
        unsigned char c = (unsigned char) *at;
        if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
            return snprintf(why, sizeof why, "control character %d", c), why;
        if (c == '&' && !wellformed_entity(at))
            return snprintf(why, sizeof why, "a bare & at \"%.40s\"", at), why;
        if (c == '>')
            return snprintf(why, sizeof why, "a bare > at \"%.40s\"", at), why;
        if (c != '<')
            continue;
        bool closing = at[1] == '/';
        char name[32];
        size_t length = 0;
        for (at += 1 + closing; isalnum((unsigned char) *at) || *at == '-'; at++)
            if (length < sizeof name - 1)
                name[length++] = *at;
        name[length] = 0;
        if (!length)
            return snprintf(why, sizeof why, "a bare < before \"%.40s\"", at), why;
        bool empty = false;
        while (*at && *at != '>') { /* attributes */
            while (isspace((unsigned char) *at))
                at++;
            empty = *at == '/';
            if (empty || *at == '>') {
                at += empty;
                continue;
            }
            size_t key = strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
            if (!key || at[key] != '=' || at[key + 1] != '"')
                return snprintf(why, sizeof why, "attribute \"%.40s\" of %s", at, name), why;
            for (at += key + 2; *at && *at != '"'; at++)
                if (*at == '<' || (*at == '&' && !wellformed_entity(at)))
                    return snprintf(why, sizeof why, "value \"%.40s\" of %s", at, name), why;
            at += *at == '"';
        }
        if (!*at)
            return snprintf(why, sizeof why, "<%s> has no end", name), why;
        if (closing) {
            if (depth == 0 || strcmp(stack[--depth], name) != 0)
                return snprintf(why, sizeof why, "</%s> closes <%s>", name, depth >= 0 ? stack[depth] : ""), why;
        } else if (!empty) {
            if (depth == 64)
                return "elements 64 deep";
            strcpy(stack[depth++], name);
        }
    }
    return depth ? snprintf(why, sizeof why, "<%s> is not closed", stack[depth - 1]), why : NULL;
}

/* Are the numbers of drawings numbers? Looks only at attributes that the page computes; texts may say what they like. NULL when all is
 * well. */
static inline const char *finite_numbers(const char *text)
{
    static const char *const keys[] = {" x=\"",     " y=\"",      " x1=\"",      " y1=\"",   " x2=\"",
                                       " y2=\"",    " cx=\"",     " cy=\"",      " r=\"",    " d=\"",
                                       " width=\"", " height=\"", " viewBox=\"", " style=\""};
    static char why[160];
    for (const char *tag = text; (tag = strchr(tag, '<')); tag++) {
        size_t length = strcspn(tag, ">");
        for (int64_t k = 0; k < SL_COUNT(keys); k++)
            for (const char *at = tag; (at = strstr(at, keys[k])) && at < tag + length; at++) {
                const char *value = at + strlen(keys[k]);
                size_t end = strcspn(value, "\"");
                for (size_t i = 0; i + 3 <= end; i++)
                    if (strncmp(value + i, "nan", 3) == 0 || strncmp(value + i, "inf", 3) == 0)
                        return snprintf(why, sizeof why, "no number in%.*s", (int) SL_MIN(end + strlen(keys[k]), 100),
                                        at),
                               why;
            }
    }
    return NULL;
}

#endif
