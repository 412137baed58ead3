/* The page's style sheet, in pieces; ends with NULL. */
#ifndef SL_REPORT_STYLE_H
#define SL_REPORT_STYLE_H

extern const char *const sl_report_style[];

#endif
