/* `sluice tokenize --train`: a tokenizer from text. */
#ifndef SL_CLI_TOKENIZE_TRAIN_H
#define SL_CLI_TOKENIZE_TRAIN_H

#include "core/options.h"

sl_status sl_cli_tokenize_train(const sl_options *options);

#endif
