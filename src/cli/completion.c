/*
 * `sluice completion SHELL`: a script that completes commands, options and values, written from the list that --help and the manual
 * are written from (pages.c). What an option's value can be follows from the placeholder that its help shows:
 *
 *     f32|bf16        these words
 *     FILE, PATH      files           DIR        folders           N, BYTES, ...    nothing
 *
 * and --model and --hw also take the names of presets and hardware profiles. The scripts hold all words themselves: completing runs no
 * program.
 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "device/device.h"
#include "model/model.h"

static const char usage[] = "usage: sluice completion bash|zsh|fish [--out FILE]\n"
                            "\n"
                            "Prints a script that completes commands, options and their values. To load it:\n"
                            "\n"
                            "  bash: eval \"$(sluice completion bash)\" in ~/.bashrc\n"
                            "  zsh:  sluice completion zsh --out DIR/_sluice, with DIR in $fpath\n"
                            "  fish: sluice completion fish --out ~/.config/fish/completions/sluice.fish\n"
                            "\n"
                            "`make install` puts all three where the shells look for them.";

static const sl_option table[] = {
    {"out", "FILE", SL_OPT_STRING, NULL, "Output", "Write the script to a file instead of standard output."},
};

/* ---- what a value can be ---- */

typedef struct values {
    sl_text words; /* with a space between them */
    bool files, folders;
} values;

static void add_word(values *v, const char *word, size_t length)
{
    sl_text_printf(&v->words, "%s%.*s", v->words.length ? " " : "", (int) length, word);
}

static void add_words(values *v, const char *const *words, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        add_word(v, words[i], strlen(words[i]));
}

/* The names of commands, or of what is below one: those pages whose name is `prefix` and one word. */
static sl_status add_pages(values *v, const char *prefix)
{
    const sl_cli_page *pages;
    int64_t count;
    size_t length = strlen(prefix);
    SL_TRY(sl_cli_pages(&pages, &count));
    for (int64_t i = 0; i < count; i++)
        if (strncmp(pages[i].name, prefix, length) == 0 && !strchr(pages[i].name + length, ' '))
            add_word(v, pages[i].name + length, strlen(pages[i].name + length));
    return SL_OK;
}

/* One alternative of a placeholder: "FILE", "PATH[,PATH...]", "bf16". */
static sl_status add_placeholder(values *v, const char *at, size_t length)
{
    size_t name = strcspn(at, "[|.");
    name = SL_MIN(name, length);
    if (!isupper((unsigned char) at[0]))
        add_word(v, at, length);
    else if (name == 4 && (strncmp(at, "FILE", 4) == 0 || strncmp(at, "PATH", 4) == 0))
        v->files = true;
    else if (name == 3 && strncmp(at, "DIR", 3) == 0)
        v->folders = true;
    else if (name == 5 && strncmp(at, "BENCH", 5) == 0)
        return add_pages(v, "bench ");
    else if (name == 7 && strncmp(at, "COMMAND", 7) == 0)
        return add_pages(v, "");
    return SL_OK;
}

/* Of an option, or of a command's operands (`name` is NULL then). */
static sl_status find_values(const char *name, const char *placeholder, values *v)
{
    *v = (values){.files = false};
    if (name && strcmp(name, "model") == 0) {
        const sl_model *presets;
        int64_t count = sl_model_presets(&presets);
        for (int64_t i = 0; i < count; i++)
            add_word(v, presets[i].name, strlen(presets[i].name));
    }
    if (name && strcmp(name, "hw") == 0) {
        int64_t count;
        const char *const *names = sl_hardware_names(&count);
        add_words(v, names, count);
    }
    for (const char *at = placeholder; at && *at;) {
        size_t length = strcspn(at, "|");
        SL_TRY(add_placeholder(v, at, length));
        at += length + (at[length] == '|');
    }
    return sl_text_status(&v->words);
}

/* "model", or "no-FLAG" of a flag that is on. */
static const char *flag_prefix(const sl_option *option)
{
    bool on = option->kind == SL_OPT_FLAG && option->otherwise && strcmp(option->otherwise, "true") == 0;
    return on ? "no-" : "";
}

/* Text in single quotes, up to the end of its first sentence. `quote` and `escaped` are the shell's. */
static void put_sentence(sl_text *out, const char *help, const char *special, const char *const *escaped)
{
    const char *end = strstr(help, ". ");
    size_t length = end ? (size_t) (end - help) : strlen(help);
    for (size_t i = 0; i < length && !(i + 1 == length && help[i] == '.'); i++) {
        const char *found = strchr(special, help[i]);
        if (found)
            sl_text_printf(out, "%s", escaped[found - special]);
        else
            sl_text_append(out, &help[i], 1);
    }
}

/* ---- bash ---- */

static void bash_options(sl_text *out, const sl_cli_page *page)
{
    sl_text_printf(out, "    '%s') options='", page->name);
    for (int64_t i = 0; i < page->count; i++)
        sl_text_printf(out, "--%s%s ", flag_prefix(&page->table[i]), page->table[i].name);
    sl_text_printf(out, "--help' ;;\n");
}

static sl_status bash_value(sl_text *out, const sl_cli_page *page, const sl_option *option)
{
    values v;
    sl_status status = SL_OK;
    if (option->kind == SL_OPT_FLAG)
        return SL_OK;
    status = find_values(option->name, option->value, &v);
    sl_text_printf(out, "    '%s --%s') value=yes", page->name, option->name);
    if (v.words.length)
        sl_text_printf(out, " words='%s'", v.words.data);
    if (v.files || v.folders)
        sl_text_printf(out, " files=%s", v.files ? "-f" : "-d");
    sl_text_printf(out, " ;;\n");
    sl_text_free(&v.words);
    return status;
}

static sl_status bash_operands(sl_text *out, const sl_cli_page *page)
{
    values v;
    if (!page->command->operands || strchr(page->name, ' '))
        return SL_OK;
    sl_status status = find_values(NULL, page->command->operands, &v);
    sl_text_printf(out, "    '%s') words='%s' files=%s ;;\n", page->name, v.words.data ? v.words.data : "",
                   v.files ? "-f" : "");
    sl_text_free(&v.words);
    return status;
}

static sl_status put_bash(sl_text *out, const sl_cli_page *pages, int64_t count)
{
    sl_text_printf(out, "# Completion of sluice for bash, written by `sluice completion bash`.\n"
                        "_sluice() {\n"
                        "    local current=${COMP_WORDS[COMP_CWORD]} last=$((COMP_CWORD - 1))\n"
                        "    local command=${COMP_WORDS[1]} options='' value='' words='' files='' previous\n"
                        "    COMPREPLY=()\n"
                        "    # bash makes three words of --name=value\n"
                        "    if [ \"$current\" = '=' ]; then current=''; elif [ \"${COMP_WORDS[last]}\" = '=' ]; then "
                        "last=$((last - 1)); fi\n"
                        "    previous=${COMP_WORDS[last]}\n"
                        "    if [ \"$command\" = bench ] && [ \"$COMP_CWORD\" -gt 2 ]; then command=\"bench "
                        "${COMP_WORDS[2]}\"; fi\n"
                        "    case $command in\n");
    for (int64_t i = 0; i < count; i++)
        bash_options(out, &pages[i]);
    sl_text_printf(out, "    esac\n    case \"$command $previous\" in\n");
    for (int64_t i = 0; i < count; i++)
        for (int64_t o = 0; o < pages[i].count; o++)
            SL_TRY(bash_value(out, &pages[i], &pages[i].table[o]));
    sl_text_printf(out, "    esac\n    if [ \"$COMP_CWORD\" -eq 1 ]; then words='");
    for (int64_t i = 0; i < count; i++)
        if (!strchr(pages[i].name, ' '))
            sl_text_printf(out, "%s ", pages[i].name);
    sl_text_printf(out, "--help --version'\n"
                        "    elif [ -z \"$value\" ]; then\n"
                        "        case $current in\n"
                        "        -*) words=$options ;;\n"
                        "        *) case $command in\n");
    for (int64_t i = 0; i < count; i++)
        SL_TRY(bash_operands(out, &pages[i]));
    sl_text_printf(out, "           *) words=$options ;;\n"
                        "           esac ;;\n"
                        "        esac\n"
                        "    fi\n"
                        "    if [ -n \"$files\" ]; then compopt -o filenames 2>/dev/null; fi\n"
                        "    mapfile -t COMPREPLY < <(\n"
                        "        compgen -W \"$words\" -- \"$current\"\n"
                        "        if [ -n \"$files\" ]; then compgen \"$files\" -- \"$current\"; fi\n"
                        "    )\n"
                        "}\n"
                        "complete -F _sluice sluice\n");
    return SL_OK;
}

/* ---- zsh ---- */

static const char *const zsh_escaped[] = {"'\\''", "(", ")", "\\:", "\\\\"};

static void zsh_text(sl_text *out, const char *help)
{
    put_sentence(out, help, "'[]:\\", zsh_escaped);
}

/* The action of _arguments that completes a value; a space: none. */
static sl_status zsh_action(sl_text *out, const char *name, const char *placeholder)
{
    values v;
    sl_status status = find_values(name, placeholder, &v);
    const char *files = v.files ? "_files" : v.folders ? "_files -/" : NULL;
    if (v.words.length && files)
        sl_text_printf(out, "{compadd -- %s; %s}", v.words.data, files);
    else if (v.words.length)
        sl_text_printf(out, "(%s)", v.words.data);
    else
        sl_text_printf(out, "%s", files ? files : " ");
    sl_text_free(&v.words);
    return status;
}

static sl_status zsh_page(sl_text *out, const sl_cli_page *page)
{
    sl_text_printf(out, "    '%s')\n        _arguments -S", page->name);
    for (int64_t i = 0; i < page->count; i++) {
        const sl_option *o = &page->table[i];
        bool flag = o->kind == SL_OPT_FLAG;
        sl_text_printf(out, " \\\n            '--%s%s%s[", flag_prefix(o), o->name, flag ? "" : "=");
        zsh_text(out, o->help);
        sl_text_printf(out, "]");
        if (!flag) {
            sl_text_printf(out, ":%s:", o->name);
            SL_TRY(zsh_action(out, o->name, o->value));
        }
        sl_text_printf(out, "'");
    }
    sl_text_printf(out, " \\\n            '--help[explain the options]'");
    if (page->command->operands && !strchr(page->name, ' ')) {
        sl_text_printf(out, " \\\n            '*:%s:", strchr(page->command->operands, '|') ? "argument" : "name");
        SL_TRY(zsh_action(out, NULL, page->command->operands));
        sl_text_printf(out, "'");
    }
    sl_text_printf(out, " ;;\n");
    return SL_OK;
}

static sl_status put_zsh(sl_text *out, const sl_cli_page *pages, int64_t count)
{
    sl_text_printf(out, "#compdef sluice\n"
                        "# Completion of sluice for zsh, written by `sluice completion zsh`.\n"
                        "_sluice() {\n"
                        "    local -a commands=(\n");
    for (int64_t i = 0; i < count; i++)
        if (!strchr(pages[i].name, ' ')) {
            sl_text_printf(out, "        '%s:", pages[i].name);
            zsh_text(out, pages[i].summary);
            sl_text_printf(out, "'\n");
        }
    sl_text_printf(out, "    )\n"
                        "    if (( CURRENT == 2 )); then _describe -t commands command commands; return; fi\n"
                        "    local command=$words[2]\n"
                        "    if [[ $command == bench ]] && (( CURRENT > 3 )); then\n"
                        "        command=\"bench $words[3]\"\n"
                        "        shift words; (( CURRENT-- ))\n"
                        "    fi\n"
                        "    shift words; (( CURRENT-- ))\n"
                        "    case $command in\n");
    for (int64_t i = 0; i < count; i++)
        SL_TRY(zsh_page(out, &pages[i]));
    sl_text_printf(out, "    esac\n"
                        "}\n"
                        "if [[ $funcstack[1] == _sluice ]]; then _sluice \"$@\"; else compdef _sluice sluice; fi\n");
    return SL_OK;
}

/* ---- fish ---- */

static const char *const fish_escaped[] = {"\\'", "\\\\"};

static void fish_text(sl_text *out, const char *help)
{
    sl_text_printf(out, " -d '");
    put_sentence(out, help, "'\\", fish_escaped);
    sl_text_printf(out, "'\n");
}

/* The condition under which a page's lines hold. */
static void fish_line(sl_text *out, const sl_cli_page *page)
{
    const char *space = strchr(page->name, ' ');
    sl_text_printf(out, "complete -c sluice -n '__fish_seen_subcommand_from %.*s",
                   space ? (int) (space - page->name) : (int) strlen(page->name), page->name);
    if (space)
        sl_text_printf(out, "; and __fish_seen_subcommand_from %s", space + 1);
    sl_text_printf(out, "'");
}

/* Options that complete files leave out -x, which would exclude them. */
static sl_status fish_value(sl_text *out, const char *name, const char *placeholder, bool option)
{
    values v;
    sl_status status = find_values(name, placeholder, &v);
    if (v.files || v.folders)
        sl_text_printf(out, option ? " -r -F" : " -F");
    else if (option)
        sl_text_printf(out, " -x");
    if (v.words.length)
        sl_text_printf(out, " -a '%s'", v.words.data);
    sl_text_free(&v.words);
    return status;
}

static sl_status fish_page(sl_text *out, const sl_cli_page *page)
{
    bool operands = page->command->operands && !strchr(page->name, ' ');
    if (!strchr(page->name, ' ')) {
        sl_text_printf(out, "complete -c sluice -n __fish_use_subcommand -a %s", page->name);
        fish_text(out, page->summary);
    }
    if (operands) {
        fish_line(out, page);
        SL_TRY(fish_value(out, NULL, page->command->operands, false));
        sl_text_printf(out, "\n");
    }
    for (int64_t i = 0; i < page->count; i++) {
        fish_line(out, page);
        sl_text_printf(out, " -l %s%s", flag_prefix(&page->table[i]), page->table[i].name);
        if (page->table[i].kind != SL_OPT_FLAG)
            SL_TRY(fish_value(out, page->table[i].name, page->table[i].value, true));
        fish_text(out, page->table[i].help);
    }
    return SL_OK;
}

static sl_status put_fish(sl_text *out, const sl_cli_page *pages, int64_t count)
{
    sl_text_printf(out, "# Completion of sluice for fish, written by `sluice completion fish`.\n"
                        "complete -c sluice -f\n"
                        "complete -c sluice -l help -d 'explain the options'\n");
    for (int64_t i = 0; i < count; i++)
        SL_TRY(fish_page(out, &pages[i]));
    return SL_OK;
}

/* ---- the command ---- */

static const struct {
    const char *name;
    sl_status (*put)(sl_text *out, const sl_cli_page *pages, int64_t count);
} shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};

static sl_status write_script(const char *shell, sl_text *script)
{
    const sl_cli_page *pages;
    int64_t count;
    SL_TRY(sl_cli_pages(&pages, &count));
    for (int64_t i = 0; i < SL_COUNT(shells); i++)
        if (strcmp(shell, shells[i].name) == 0) {
            SL_TRY(shells[i].put(script, pages, count));
            return SL_OK;
        }
    return sl_fail(SL_E_USAGE, "there is no completion for \"%s\": use bash, zsh or fish", shell);
}

static sl_status run(const sl_options *options, const char *const *operands, int64_t count)
{
    sl_text script = {0};
    if (count == 0)
        return sl_fail(SL_E_USAGE, "completion needs a shell: sluice completion bash, zsh or fish");
    sl_status status = write_script(operands[0], &script);
    if (status == SL_OK)
        return sl_cli_write(&script, sl_options_string(options, "out"));
    sl_text_free(&script);
    return status;
}

const sl_cli_command sl_cli_completion = {.usage = usage,
                                          .operands = "bash|zsh|fish",
                                          .most_operands = 1,
                                          .table = table,
                                          .count = SL_COUNT(table),
                                          .run = run};
