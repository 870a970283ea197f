#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "report_html.h"

enum { MOST_COLOURS = 16 };

static char *base64(const uint8_t *bytes, size_t n) {
  static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  char *text = ls_shortage_unless(malloc((n + 2) / 3 * 4 + 1)), *to = text;
  for (size_t i = 0; text && i < n; i += 3) {
    const uint32_t left = (uint32_t)(n - i),
                   group = (uint32_t)bytes[i] << 16 | (left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0) | (left > 2 ? bytes[i + 2] : 0);
    *to++ = digit[group >> 18];
    *to++ = digit[group >> 12 & 63];
    *to++ = left > 1 ? digit[group >> 6 & 63] : '=';
    *to++ = left > 2 ? digit[group & 63] : '=';
  }
  if (text) *to = '\0';
  return text;
}

char *report_png_base64(const uint8_t *cells, int across, int down, const uint32_t *colour, int colours) {
  uint8_t map[4 * MOST_COLOURS];
  if (across < 1 || down < 1 || colours > MOST_COLOURS) return NULL;
  for (int i = 0; i < colours; i++) {
    for (int c = 0; c < 4; c++) map[4 * i + c] = (uint8_t)(colour[i] >> (24 - 8 * c));
  }
  png_image image = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)across,
                     .height = (png_uint_32)down,
                     .format = PNG_FORMAT_RGBA_COLORMAP,
                     .colormap_entries = (png_uint_32)colours};
  png_alloc_size_t size = 0;
  char *text = NULL;
  if (!png_image_write_to_memory(&image, NULL, &size, 0, cells, across, map)) return NULL;
  uint8_t *bytes = ls_shortage_unless(malloc(size));
  if (bytes && png_image_write_to_memory(&image, bytes, &size, 0, cells, across, map)) text = base64(bytes, size);
  free(bytes);
  return text;
}
