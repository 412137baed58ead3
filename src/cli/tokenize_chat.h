/* `sluice tokenize --chat`: what training would see of chats. */
#ifndef SL_CLI_TOKENIZE_CHAT_H
#define SL_CLI_TOKENIZE_CHAT_H

#include "core/options.h"
#include "text/tokenizer.h"

/* `folder` holds the template. Prints every chat of --data as text with the counted part between « and », or as JSON. */
sl_status sl_cli_tokenize_chat(const sl_options *options, const char *folder, const sl_tokenizer *tokenizer);

#endif
