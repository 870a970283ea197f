#include "json_check.h"

#include <ctype.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

typedef struct {
  const char *start, *at;
  char *why;
} reader;

static json_value *fail_at(reader *r, json_value *v, const char *what) {
  snprintf(r->why, JSON_WHY, "%s at byte %d: %.40s", what, (int)(r->at - r->start), r->at);
  json_free(v);
  return NULL;
}

static void skip(reader *r) { r->at += strspn(r->at, " \t\r\n"); }

static char *read_string(reader *r) {
  size_t longest = 1; /* up to the first quote that is not escaped */
  while (r->at[longest] && (r->at[longest] != '"' || r->at[longest - 1] == '\\')) longest++;
  char *text = malloc(longest + 1), *to = text;
  for (r->at++; *r->at && *r->at != '"'; r->at++) {
    if ((unsigned char)*r->at < 0x20) break;
    if (*r->at != '\\') {
      *to++ = *r->at;
      continue;
    }
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    r->at++;
    const char *escape = *r->at ? strchr(from, *r->at) : NULL;
    if (escape) {
      *to++ = into[escape - from];
    } else if (*r->at == 'u' && isxdigit(r->at[1]) && isxdigit(r->at[2]) && isxdigit(r->at[3]) && isxdigit(r->at[4])) {
      *to++ = '?'; /* which character it is does not matter here */
      r->at += 4;
    } else {
      break;
    }
  }
  *to = '\0';
  if (*r->at != '"') {
    free(text);
    return NULL;
  }
  r->at++;
  return text;
}

static json_value *read_value(reader *r);

static json_value *read_items(reader *r, json_value *v, char end) {
  bool object = v->kind == JSON_OBJECT;
  r->at++;
  skip(r);
  if (*r->at == end) {
    r->at++;
    return v;
  }
  for (;;) {
    v->item = realloc(v->item, (size_t)(v->n + 1) * sizeof *v->item);
    v->key = realloc(v->key, (size_t)(v->n + 1) * sizeof *v->key);
    v->key[v->n] = NULL;
    skip(r);
    if (object) {
      char *key = *r->at == '"' ? read_string(r) : NULL;
      skip(r);
      if (!key || *r->at != ':' || json_get(v, key)) {
        free(key);
        return fail_at(r, v, "expected a new key and a colon");
      }
      r->at++;
      v->key[v->n] = key;
    }
    v->item[v->n] = read_value(r);
    if (!v->item[v->n]) {
      free(v->key[v->n]);
      json_free(v);
      return NULL;
    }
    v->n++;
    skip(r);
    if (*r->at == end) {
      r->at++;
      return v;
    }
    if (*r->at != ',') return fail_at(r, v, "expected a comma");
    r->at++;
  }
}

static json_value *read_value(reader *r) {
  static const struct {
    const char *word;
    json_kind kind;
    double number;
  } words[] = {{"null", JSON_NULL, 0}, {"true", JSON_BOOL, 1}, {"false", JSON_BOOL, 0}};
  json_value *v = calloc(1, sizeof *v);
  skip(r);
  for (int i = 0; i < 3; i++) {
    if (strncmp(r->at, words[i].word, strlen(words[i].word)) != 0) continue;
    r->at += strlen(words[i].word);
    v->kind = words[i].kind, v->number = words[i].number;
    return v;
  }
  if (*r->at == '{') {
    v->kind = JSON_OBJECT;
    return read_items(r, v, '}');
  }
  if (*r->at == '[') {
    v->kind = JSON_ARRAY;
    return read_items(r, v, ']');
  }
  if (*r->at == '"') {
    v->kind = JSON_STRING;
    v->string = read_string(r);
    return v->string ? v : fail_at(r, v, "bad string");
  }
  if (*r->at == '-' || isdigit((unsigned char)*r->at)) { /* strtod alone would take nan and hexadecimal */
    size_t length = strspn(r->at, "-+.eE0123456789");
    char *end;
    v->kind = JSON_NUMBER;
    v->number = strtod(r->at, &end);
    v->integer = strcspn(r->at, ".eE") >= length;
    if (end != r->at + length) return fail_at(r, v, "bad number");
    r->at = end;
    return v;
  }
  return fail_at(r, v, "no value");
}

json_value *json_read(const char *text, char why[JSON_WHY]) {
  reader r = {text, text, why};
  json_value *v = read_value(&r);
  if (!v) return NULL;
  skip(&r);
  return *r.at == '\0' ? v : fail_at(&r, v, "text after the value");
}

void json_free(json_value *v) {
  if (!v) return;
  for (int i = 0; i < v->n; i++) {
    free(v->key[i]);
    json_free(v->item[i]);
  }
  free(v->key);
  free(v->item);
  free(v->string);
  free(v);
}

const json_value *json_get(const json_value *object, const char *key) {
  for (int i = 0; object && object->kind == JSON_OBJECT && i < object->n; i++) {
    if (strcmp(object->key[i], key) == 0) return object->item[i];
  }
  return NULL;
}

char *json_file_text(const char *file) {
  FILE *in = fopen(file, "rb");
  if (!in) return NULL;
  fseek(in, 0, SEEK_END);
  long size = ftell(in);
  rewind(in);
  char *text = calloc((size_t)size + 1, 1);
  if (fread(text, 1, (size_t)size, in) != (size_t)size) text[0] = '\0';
  fclose(in);
  return text;
}

/* ---- checking ---- */

typedef struct {
  const json_value *root;
  char *why;
  char place[256];
} checker;

static bool bad(checker *c, const char *what, const char *detail) {
  snprintf(c->why, JSON_WHY, "%.200s: %s %.200s", c->place[0] ? c->place : "the document", what, detail);
  return false;
}

static bool equal(const json_value *a, const json_value *b) {
  if (a->kind != b->kind) return false;
  if (a->kind == JSON_STRING) return strcmp(a->string, b->string) == 0;
  return a->kind == JSON_NULL || ((a->kind == JSON_NUMBER || a->kind == JSON_BOOL) && a->number == b->number);
}

static bool has_type(const json_value *v, const char *type) {
  static const char *const name[] = {"null", "boolean", "number", "string", "array", "object"};
  if (strcmp(type, "integer") == 0) return v->kind == JSON_NUMBER && v->integer;
  return strcmp(type, name[v->kind]) == 0;
}

static bool check(checker *c, const json_value *v, const json_value *schema);

static bool check_inside(checker *c, const json_value *v, const json_value *schema, const char *name) {
  size_t length = strlen(c->place);
  snprintf(c->place + length, sizeof c->place - length, "/%s", name);
  bool ok = check(c, v, schema);
  if (ok) c->place[length] = '\0';
  return ok;
}

static bool check_keyword(checker *c, const json_value *v, const json_value *schema, const char *key, const json_value *rule) {
  if (strcmp(key, "$schema") == 0 || strcmp(key, "title") == 0 || strcmp(key, "description") == 0 || strcmp(key, "$defs") == 0) return true;
  if (strcmp(key, "$ref") == 0) {
    const json_value *target = json_get(json_get(c->root, "$defs"), rule->string + strlen("#/$defs/"));
    return target ? check(c, v, target) : bad(c, "no such definition:", rule->string);
  }
  if (strcmp(key, "type") == 0) {
    bool ok = rule->kind == JSON_STRING && has_type(v, rule->string);
    for (int i = 0; rule->kind == JSON_ARRAY && i < rule->n; i++) ok = ok || has_type(v, rule->item[i]->string);
    return ok || bad(c, "wrong type,", v->kind == JSON_STRING ? v->string : "not a string");
  }
  if (strcmp(key, "const") == 0) return equal(v, rule) || bad(c, "wrong constant", "");
  if (strcmp(key, "enum") == 0) {
    bool ok = false;
    for (int i = 0; i < rule->n; i++) ok = ok || equal(v, rule->item[i]);
    return ok || bad(c, "not one of the enum:", v->kind == JSON_STRING ? v->string : "not a string");
  }
  if (strcmp(key, "minimum") == 0) return v->kind != JSON_NUMBER || v->number >= rule->number || bad(c, "below the minimum", "");
  if (strcmp(key, "pattern") == 0) {
    regex_t regex;
    if (v->kind != JSON_STRING) return true;
    if (regcomp(&regex, rule->string, REG_EXTENDED | REG_NOSUB) != 0) return bad(c, "bad pattern", rule->string);
    bool ok = regexec(&regex, v->string, 0, NULL, 0) == 0;
    regfree(&regex);
    return ok || bad(c, "does not match the pattern:", v->string);
  }
  if (strcmp(key, "anyOf") == 0) {
    char place[sizeof c->place];
    memcpy(place, c->place, sizeof place);
    for (int i = 0; i < rule->n; i++) {
      if (check(c, v, rule->item[i])) return true;
      memcpy(c->place, place, sizeof place);
    }
    return bad(c, "none of anyOf", "");
  }
  if (strcmp(key, "required") == 0) {
    for (int i = 0; v->kind == JSON_OBJECT && i < rule->n; i++) {
      if (!json_get(v, rule->item[i]->string)) return bad(c, "lacks", rule->item[i]->string);
    }
    return true;
  }
  if (strcmp(key, "properties") == 0) {
    for (int i = 0; v->kind == JSON_OBJECT && i < v->n; i++) {
      const json_value *inner = json_get(rule, v->key[i]);
      if (inner && !check_inside(c, v->item[i], inner, v->key[i])) return false;
    }
    return true;
  }
  if (strcmp(key, "additionalProperties") == 0) {
    const json_value *allowed = json_get(schema, "properties");
    for (int i = 0; v->kind == JSON_OBJECT && i < v->n; i++) {
      if (!json_get(allowed, v->key[i])) return bad(c, "has a key that the schema does not know:", v->key[i]);
    }
    return true;
  }
  if (strcmp(key, "items") == 0) {
    for (int i = 0; v->kind == JSON_ARRAY && i < v->n; i++) {
      char name[16];
      snprintf(name, sizeof name, "%d", i);
      if (!check_inside(c, v->item[i], rule, name)) return false;
    }
    return true;
  }
  return bad(c, "the check does not know the keyword", key);
}

static bool check(checker *c, const json_value *v, const json_value *schema) {
  for (int i = 0; i < schema->n; i++) {
    if (!check_keyword(c, v, schema, schema->key[i], schema->item[i])) return false;
  }
  return true;
}

bool json_conforms(const json_value *v, const json_value *schema, char why[JSON_WHY]) {
  checker c = {.root = schema, .why = why};
  return check(&c, v, schema);
}
