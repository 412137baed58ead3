/*
 * Rounds one after the other, or each round's forward between the pieces of the backward before it. This is a
 * placement decision: forwards change no state and backwards keep their order, so no sum and no bit changes.
 */
#ifndef SL_PROGRAM_INTERLEAVE_H
#define SL_PROGRAM_INTERLEAVE_H

#include "program/program.h"

/* Reorders the program's tasks. Nothing to do (*changed false): fewer than two rounds, or no backward. */
sl_status sl_interleave(sl_program *program, bool *changed);

#endif
