/* report_html: what the files of the HTML rendering share; private to compare/. Text from elsewhere goes through html_text and nothing
 * else. */
#ifndef LS_REPORT_HTML_H
#define LS_REPORT_HTML_H

#include "report_numbers.h"

/* Pieces one after the other, NULL-terminated. */
extern const char *const report_html_style[], *const report_html_script[];

/* report_html.c */
void html_text(FILE *out, const char *text); /* escaped, also for an attribute in double quotes */
/* Formats, and escapes what comes out. */
void html_say(FILE *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
void html_verdict(FILE *out, ls_verdict verdict);  /* the word in its colour */
void html_command(FILE *out, const char *command); /* a line to copy */
void html_number(FILE *out, int64_t n);            /* 1,234,567 */

/* report_html_panels.c: maps, rings, histograms and selections of one kept detail. open: unfolded. */
void html_panel(FILE *out, const report_file *file, const report_detail *d, const ls_report_options *options, bool open);
void html_legend(FILE *out); /* of the colours of maps */

/* report_png.c: the cells of a map as a PNG, one pixel a cell, in base64; the caller frees it. colour: 0xRRGGBBAA for each value. NULL: out
 * of memory, or nothing to show. */
char *report_png_base64(const uint8_t *cells, int across, int down, const uint32_t *colour, int colours);

#endif
