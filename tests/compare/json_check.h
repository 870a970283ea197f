/* A small JSON reader of its own, and a check of a document against a JSON Schema (the keywords that docs/report.schema.json uses; any
 * other is a failure, so that none is ignored). Both return false with a line in *why. */
#ifndef LS_TESTS_JSON_CHECK_H
#define LS_TESTS_JSON_CHECK_H

#include <stdbool.h>

typedef enum { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

typedef struct json_value json_value;
struct json_value {
  json_kind kind;
  double number; /* of a bool: 0 or 1 */
  bool integer;  /* written without fraction or exponent */
  char *string;
  int n;
  char **key; /* of an object */
  json_value **item;
};

enum { JSON_WHY = 512 };

json_value *json_read(const char *text, char why[JSON_WHY]); /* NULL: not JSON */
void json_free(json_value *v);
const json_value *json_get(const json_value *object, const char *key); /* NULL: absent */
char *json_file_text(const char *file);                                /* NULL: cannot be read; to be freed */

bool json_conforms(const json_value *v, const json_value *schema, char why[JSON_WHY]);

#endif
