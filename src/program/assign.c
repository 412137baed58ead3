/*
 * Which optimizer updates which parameter, and what follows: where its states lie, and the runs of a group that one update or sum of
 * squares works on.
 *
 *     layers.3.attention     | qkv (muon): q | k | v | o (muon) | norm (adamw) |
 *     runs                   | ----- q ----- | k v   | -- o --- | --- norm --- |   of one shape: | q k v o | norm |
 *     moment1                | qkv                   | o        | norm         |
 *     moment2                | norm |                                            AdamW alone keeps one
 *
 * A state's object holds the parameters that have it, one after the other, padded as in the group. Where all of a group's parameters have
 * one optimizer, states have the layout of the group.
 */
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

#include "core/text.h"
#include "program/internal.h"

enum { RULE_BYTES = 256 };

/* The end of the pattern in "pattern=optimizer"; NULL: it is no rule. */
static char *find_optimizer(char *rule, sl_optimizer *optimizer)
{
    char *equals = strrchr(rule, '=');
    return equals && sl_optimizer_find(equals + 1, optimizer) ? equals : NULL;
}

static sl_status refuse_rule(const char *rule)
{
    char names[256] = "";
    for (int i = 0; i < SL_OPTIMIZER_COUNT; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", sl_optimizer_of((sl_optimizer) i)->name);
    }
    return sl_fail(
        SL_E_USAGE,
        "\"%s\" is no rule for optimizers: write PATTERN=OPTIMIZER, where PATTERN names parameters (* stands "
        "for any characters) and OPTIMIZER is one of %s",
        rule, names);
}

/* A rule that decides nothing is a mistake: its pattern is misspelt, or an earlier rule was meant to leave it something. */
static sl_status apply_rule(sl_program *p, const char *pattern, sl_optimizer optimizer)
{
    const sl_optimizer_def *def = sl_optimizer_of(optimizer);
    bool matched = false, decided = false;
    for (int32_t i = 0; i < p->n_params; i++) {
        const sl_param *param = &p->params[i];
        if (fnmatch(pattern, param->name, 0) != 0)
            continue;
        matched = true;
        if (p->optimizer[i] >= 0 || param->frozen)
            continue;
        if (def->granularity == SL_UPDATE_MATRIX && !param->matrix)
            return sl_fail(SL_E_USAGE,
                           "\"%s\" gives %s to %s, which only updates matrices between activations: use a narrower "
                           "pattern, or put a rule for %s in front",
                           pattern, param->name, def->name, param->name);
        p->optimizer[i] = (int32_t) optimizer;
        decided = true;
    }
    if (!matched)
        return sl_fail(
            SL_E_USAGE,
            "no parameter to give to %s is called \"%s\"; the model's are called %s ... %s, and * stands for "
            "any characters",
            def->name, pattern, p->params[0].name, p->params[p->n_params - 1].name);
    if (!decided)
        return sl_fail(SL_E_USAGE,
                       "the rule \"%s=%s\" has no effect: all parameters of this name are frozen or follow an earlier "
                       "rule; put it in front of that one or leave it out",
                       pattern, def->name);
    return SL_OK;
}

void sl_program_may_use(const sl_program_config *config, bool used[SL_OPTIMIZER_COUNT])
{
    char rule[RULE_BYTES];
    sl_optimizer optimizer = config->optimizer;
    memset(used, 0, SL_OPTIMIZER_COUNT * sizeof *used);
    used[optimizer] = true;
    if (sl_optimizer_of(optimizer)->granularity == SL_UPDATE_MATRIX)
        used[sl_optimizer_of(optimizer)->others] = true;
    for (const char *rules = config->optimizer_rules; sl_next_item(&rules, rule, sizeof rule);)
        if (find_optimizer(rule, &optimizer))
            used[optimizer] = true;
}

/* The first rule that matches decides, then the configuration's optimizer, or what it leaves others to. */
static sl_status assign(sl_program *p)
{
    char rule[RULE_BYTES];
    const sl_optimizer_def *def = sl_optimizer_of(p->config.optimizer);
    for (const char *rules = p->config.optimizer_rules; sl_next_item(&rules, rule, sizeof rule);) {
        sl_optimizer optimizer = p->config.optimizer;
        char *end = find_optimizer(rule, &optimizer);
        if (!end)
            return refuse_rule(rule);
        *end = 0;
        SL_TRY(apply_rule(p, rule, optimizer));
    }
    for (int32_t i = 0; i < p->n_params; i++)
        if (p->optimizer[i] < 0)
            p->optimizer[i] =
                (int32_t) (def->granularity == SL_UPDATE_MATRIX && !p->params[i].matrix ? def->others
                                                                                        : p->config.optimizer);
    return SL_OK;
}

static sl_status count_corrections(sl_program *p)
{
    int32_t rows = 0;
    bool used[SL_OPTIMIZER_COUNT] = {false};
    for (int32_t i = 0; i < p->n_params; i++)
        used[p->optimizer[i]] |= !p->params[i].frozen;
    for (int k = 0; k < SL_OPTIMIZER_COUNT; k++)
        p->correction[k] = used[k] && sl_optimizer_of((sl_optimizer) k)->correct ? rows++ : -1;
    return rows <= SL_MAX_CORRECTIONS
               ? SL_OK
               : sl_fail(SL_E_UNSUPPORTED, "a step corrects the states of at most %d optimizers, not of %d",
                         SL_MAX_CORRECTIONS, rows);
}

/* Parameter i of a group in order of address: those with weight decay come first. -1: parameter i % n is among the others. */
static int32_t by_address(const sl_program *p, const sl_param_group *group, int32_t i)
{
    const int32_t param = group->first_param + i % group->n_params;
    return p->params[param].decay == (i < group->n_params) ? param : -1;
}

static void place_states(builder *b, const sl_param_group *group, int64_t *counts)
{
    sl_program *p = b->program;
    for (int32_t i = 0; i < 2 * group->n_params; i++) {
        const int32_t param = by_address(p, group, i);
        const sl_optimizer_def *optimizer = param < 0 ? NULL : sl_optimizer_of((sl_optimizer) p->optimizer[param]);
        for (int k = 0; optimizer && k < optimizer->n_states; k++) {
            const int slot = sl_optimizer_slot(optimizer, k);
            p->state_first[slot][param] = counts[slot];
            counts[slot] += sl_update_next(b->dtype, sl_type_count(&p->params[param].type));
        }
    }
}

sl_status sl_program_assign(builder *b)
{
    sl_program *p = b->program;
    SL_TRY(sl_region_alloc(p->region, &p->optimizer, p->n_params, sizeof *p->optimizer));
    memset(p->optimizer, -1, (size_t) p->n_params * sizeof *p->optimizer);
    for (int k = 0; k < SL_STATE_SLOTS; k++) {
        SL_TRY(sl_region_alloc(p->region, &p->state_first[k], p->n_params, sizeof *p->state_first[k]));
        SL_TRY(sl_region_alloc(p->region, &p->state_count[k], p->n_groups, sizeof *p->state_count[k]));
        memset(p->state_first[k], -1, (size_t) p->n_params * sizeof *p->state_first[k]);
    }
    memset(p->correction, -1, sizeof p->correction);
    if (p->config.forward_only)
        return SL_OK;
    SL_TRY(assign(p));
    SL_TRY(count_corrections(p));
    for (int32_t g = 0; g < p->n_groups; g++) {
        int64_t counts[SL_STATE_SLOTS] = {0};
        if (!p->groups[g].frozen)
            place_states(b, &p->groups[g], counts);
        for (int k = 0; k < SL_STATE_SLOTS; k++)
            p->state_count[k][g] = counts[k];
    }
    return SL_OK;
}

void sl_program_correct(const sl_program *program, double updates, sl_step_params *step)
{
    for (int k = 0; k < SL_OPTIMIZER_COUNT; k++)
        if (program->correction[k] >= 0)
            sl_optimizer_of((sl_optimizer) k)
                ->correct(program->config.optimizer_options[k], updates, step->corrections[program->correction[k]]);
}

/* ---- runs ---- */

/* Elements that need nothing of each other go on a run that they touch. */
static void add_flat(builder *b, int32_t first_run, const group_run *next)
{
    group_run *run = b->n_runs > first_run ? &b->runs[b->n_runs - 1] : NULL;
    if (!run || run->optimizer != next->optimizer || run->first + run->count != next->first) {
        b->runs[b->n_runs++] = *next;
        return;
    }
    run->count += next->count;
    run->decayed += next->decayed;
}

/* Matrices of one shape side by side: one launch, whose products fill the device better. */
static bool extends(const group_run *last, const group_run *next)
{
    return last->optimizer == next->optimizer && last->rows == next->rows && last->columns == next->columns &&
           (last->decayed > 0) == (next->decayed > 0) && last->first + last->count == next->first &&
           last->tensors < SL_MAX_UPDATE_TENSORS;
}

/* The tensors that a parameter is in files, if its parts say so; else one. */
static void add_tensors(builder *b, int32_t first_run, const sl_param *param, group_run run)
{
    const int64_t rows = param->type.dim[0];
    const bool matrices = sl_optimizer_of(run.optimizer)->granularity == SL_UPDATE_MATRIX;
    int64_t covered = 0;
    run.tensors = 1;
    run.columns = run.count / rows;
    for (int i = 0; i < param->n_parts && param->parts[i].row == covered; i++)
        covered += param->parts[i].rows;
    const int parts = covered == rows && param->n_parts ? param->n_parts : 1;
    for (int i = 0; i < parts; i++) {
        group_run *last = b->n_runs > first_run ? &b->runs[b->n_runs - 1] : NULL;
        run.rows = parts > 1 ? param->parts[i].rows : rows;
        run.count = run.rows * run.columns;
        run.decayed = param->decay ? run.count : 0;
        if (last && matrices && extends(last, &run)) {
            last->tensors++;
            last->count += run.count;
            last->decayed += run.decayed;
        } else {
            b->runs[b->n_runs++] = run;
        }
        run.first += run.count;
    }
}

sl_status sl_program_find_runs(builder *b)
{
    sl_program *p = b->program;
    if (p->config.forward_only)
        return SL_OK;
    SL_TRY(sl_region_alloc(p->region, &b->runs, SL_MAX_PARTS * (int64_t) p->n_params, sizeof *b->runs));
    for (int32_t g = 0; g < p->n_groups; g++) {
        const int32_t first_run = b->n_runs;
        for (int32_t i = 0; i < 2 * p->groups[g].n_params && !p->groups[g].frozen; i++) {
            const int32_t param = by_address(p, &p->groups[g], i);
            if (param < 0)
                continue;
            const int64_t count = sl_type_count(&p->params[param].type);
            const group_run run = {.group = g,
                                   .param = param,
                                   .optimizer = (sl_optimizer) p->optimizer[param],
                                   .first = sl_program_first_element(b, param),
                                   .count = count,
                                   .decayed = p->params[param].decay ? count : 0};
            if (sl_optimizer_of(run.optimizer)->granularity == SL_UPDATE_FLAT)
                add_flat(b, first_run, &run);
            else
                add_tensors(b, first_run, &p->params[param], run);
        }
    }
    return SL_OK;
}
