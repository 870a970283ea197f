#include "fuzz_edit.h"

#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

/* ---- the base ---- */

static void add_name(char **list, int *n, const char *name) {
  for (int i = 0; i < *n; i++)
    if (strcmp(list[i], name) == 0) return;
  if (*n < FUZZ_MOST_NAMES) list[(*n)++] = strdup(name);
}

static herr_t see_attribute(hid_t object, const char *name, const H5A_info_t *info, void *arg) {
  fuzz_base *base = arg;
  (void)object, (void)info;
  add_name(base->attribute, &base->attributes, name);
  return 0;
}

static herr_t see_object(hid_t file, const char *name, const H5O_info_t *info, void *arg) {
  fuzz_base *base = arg;
  char path[512];
  (void)info;
  snprintf(path, sizeof path, "/%s", strcmp(name, ".") == 0 ? "" : name);
  add_name(base->object, &base->objects, path);
  hid_t object = H5Oopen(file, path, H5P_DEFAULT);
  H5Aiterate2(object, H5_INDEX_NAME, H5_ITER_INC, NULL, see_attribute, base);
  H5Oclose(object);
  return 0;
}

void fuzz_base_load(fuzz_base *base, const char *path) {
  static const char *const more[] = {"generator", "name",     "scale", "offset", "shape",      "atol", "rtol",       "status",
                                     "cursor",    "position", "layer", "why",    "given_hash", "op",   "index_keys", "capture_rows"};
  memset(base, 0, sizeof *base);
  base->bytes = fuzz_file_bytes(path, &base->n);
  hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT);
  if (file < 0) abort();
  H5Ovisit2(file, H5_INDEX_NAME, H5_ITER_INC, see_object, base, H5O_INFO_BASIC);
  H5Fclose(file);
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) add_name(base->attribute, &base->attributes, more[i]);
}

/* ---- names and types ---- */

static const char *pick_object(const fuzz_base *base, fuzz_bytes *b) {
  return base->object[(fuzz_u8(b) | fuzz_u8(b) << 8) % base->objects];
}

/* An attribute's name: one that some object has, or any bytes. */
static const char *pick_attribute(const fuzz_base *base, fuzz_bytes *b, char text[64]) {
  const int i = fuzz_u8(b);
  if (i < 240) return base->attribute[i % base->attributes];
  int n = (int)fuzz_below(b, 63);
  for (int k = 0; k < n; k++) text[k] = (char)fuzz_u8(b);
  text[n] = '\0';
  return text;
}

/* A path that need not be there: a known one, a known last name under a known group, or any bytes under one. */
static const char *pick_path(const fuzz_base *base, fuzz_bytes *b, char text[600]) {
  const char *one = pick_object(base, b);
  const int kind = (int)fuzz_below(b, 4);
  if (kind == 0) return one;
  const char *group = strcmp(one, "/") == 0 ? "" : one;
  if (kind == 1) {
    const char *other = pick_object(base, b);
    snprintf(text, 600, "%s/%s", group, strrchr(other, '/') + 1);
  } else if (kind == 2) {
    static const char *const names[] = {"0000", "0007", "00000", "12345678901234567890", "in", "expect", "x", "capture", "state", "layers"};
    snprintf(text, 600, "%s/%s", group, names[fuzz_below(b, sizeof names / sizeof *names)]);
  } else {
    char name[33] = "";
    const int n = 1 + (int)fuzz_below(b, 32);
    for (int i = 0; i < n; i++) name[i] = (char)fuzz_u8(b);
    snprintf(text, 600, "%s/%s", group, name);
  }
  return text;
}

static hid_t float_type(size_t sign, size_t exponent, size_t exponent_bits, size_t mantissa_bits, size_t bytes, size_t bias) {
  hid_t t = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(t, sign, exponent, exponent_bits, 0, mantissa_bits);
  H5Tset_precision(t, 8 * bytes);
  H5Tset_size(t, bytes);
  H5Tset_ebias(t, bias);
  return t;
}

static hid_t string_type(size_t size) {
  hid_t t = H5Tcopy(H5T_C_S1);
  H5Tset_size(t, size);
  return t;
}

static hid_t compound_type(void) {
  hid_t t = H5Tcreate(H5T_COMPOUND, 8);
  H5Tinsert(t, "a", 0, H5T_STD_I32LE);
  H5Tinsert(t, "b", 4, H5T_IEEE_F32LE);
  return t;
}

/* Types that a file may hold, those of the format first. Closed by the caller. */
static hid_t pick_type(fuzz_bytes *b) {
  const hsize_t two = 2;
  switch (fuzz_below(b, 24)) {
    case 0:
    case 1:
    case 2:
      return float_type(15, 7, 8, 7, 2, 127); /* bf16 */
    case 3:
      return float_type(15, 10, 5, 10, 2, 15); /* f16 */
    case 4:
      return H5Tcopy(H5T_IEEE_F32LE);
    case 5:
      return H5Tcopy(H5T_IEEE_F64LE);
    case 6:
      return H5Tcopy(H5T_STD_I32LE);
    case 7:
      return H5Tcopy(H5T_STD_U8LE);
    case 8:
      return H5Tcopy(H5T_STD_I64LE);
    case 9:
      return H5Tcopy(H5T_STD_U64BE);
    case 10:
      return H5Tcopy(H5T_STD_I8LE);
    case 11:
      return H5Tcopy(H5T_STD_I16BE);
    case 12:
      return H5Tcopy(H5T_IEEE_F32BE);
    case 13:
      return H5Tcopy(H5T_NATIVE_LDOUBLE);
    case 14:
      return string_type(1 + (size_t)fuzz_below(b, 40));
    case 15:
      return string_type(H5T_VARIABLE);
    case 16:
      return compound_type();
    case 17:
      return H5Tarray_create2(H5T_STD_I32LE, 1, &two);
    case 18:
      return H5Tvlen_create(H5T_STD_I32LE);
    case 19:
      return H5Tcopy(H5T_STD_REF_OBJ);
    case 20:
      return H5Tenum_create(H5T_STD_I32LE);
    case 21:
      return H5Tcreate(H5T_OPAQUE, 1 + (size_t)fuzz_below(b, 16));
    case 22:
      return H5Tcopy(H5T_STD_B16LE);
    default:
      return float_type(7, 3, 4, 3, 1, 7); /* e4m3: none that a tensor may have */
  }
}

/* ---- edits ---- */

static void put_attribute(hid_t file, const char *path, const char *name, hid_t type, hid_t space, const void *value) {
  hid_t object = H5Oopen(file, path, H5P_DEFAULT);
  if (object >= 0) {
    if (H5Aexists(object, name) > 0) H5Adelete(object, name);
    hid_t a = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    if (a >= 0) {
      if (value != NULL) H5Awrite(a, type, value);
      H5Aclose(a);
    }
    H5Oclose(object);
  }
}

static void set_int(hid_t file, const char *path, const char *name, fuzz_bytes *b) {
  const int64_t v = fuzz_int(b);
  hid_t scalar = H5Screate(H5S_SCALAR);
  put_attribute(file, path, name, H5T_NATIVE_INT64, scalar, &v);
  H5Sclose(scalar);
}

static void set_real(hid_t file, const char *path, const char *name, fuzz_bytes *b) {
  const double v = fuzz_real(b);
  hid_t scalar = H5Screate(H5S_SCALAR);
  put_attribute(file, path, name, H5T_NATIVE_DOUBLE, scalar, &v);
  H5Sclose(scalar);
}

static void set_text(hid_t file, const char *path, const char *name, fuzz_bytes *b) {
  static const char *const words[] = {"ok",
                                      "refused",
                                      "capture",
                                      "draft_write",
                                      "context_write",
                                      "rewind",
                                      "forward",
                                      "bf16",
                                      "f16",
                                      "own",
                                      "published",
                                      "splitmix64",
                                      "dflash_context_kv",
                                      "attn_v41",
                                      "tensors",
                                      "digest",
                                      "lockstep-fixture",
                                      "lockstep-trace",
                                      "0123456789abcdef",
                                      "",
                                      "PASS",
                                      "FAIL: so"};
  char text[256] = "";
  const int i = fuzz_u8(b);
  if (i < 200) {
    snprintf(text, sizeof text, "%s", words[(size_t)i % (sizeof words / sizeof *words)]);
  } else {
    const int n = fuzz_u8(b);
    for (int k = 0; k < n && k < 255; k++) text[k] = (char)fuzz_u8(b);
  }
  hid_t scalar = H5Screate(H5S_SCALAR);
  const bool variable = fuzz_below(b, 2) == 1;
  hid_t type = string_type(variable ? H5T_VARIABLE : sizeof text);
  const char *pointer = text;
  put_attribute(file, path, name, type, scalar, variable ? (const void *)&pointer : (const void *)text);
  H5Tclose(type);
  H5Sclose(scalar);
}

/* Any type, any rank; filled with bytes where they are only that. */
static void set_any(hid_t file, const char *path, const char *name, fuzz_bytes *b) {
  hid_t type = pick_type(b);
  hsize_t dim[3] = {(hsize_t)fuzz_below(b, 9), 2, 1};
  const int rank = (int)fuzz_below(b, 5);
  hid_t space = rank == 4 ? H5Screate(H5S_NULL) : rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dim, NULL);
  uint8_t value[1024] = {0}; /* the largest element is 40 bytes, of at most 16 */
  for (int i = 0; i < 16; i++) value[i] = fuzz_u8(b);
  const bool plain = H5Tdetect_class(type, H5T_VLEN) <= 0 && H5Tis_variable_str(type) <= 0 && H5Tget_class(type) != H5T_REFERENCE;
  put_attribute(file, path, name, type, space, plain && rank < 4 ? value : NULL);
  H5Sclose(space);
  H5Tclose(type);
}

static void put_dataset(hid_t file, const char *path, fuzz_bytes *b) {
  hid_t type = pick_type(b), list = H5Pcreate(H5P_DATASET_CREATE), space;
  const int rank = (int)fuzz_below(b, 8);
  hsize_t dim[8], chunk[8];
  for (int i = 0; i < rank; i++) {
    const int64_t size = fuzz_int(b);
    dim[i] = size < 0 ? 0 : (hsize_t)size;
    chunk[i] = dim[i] == 0 ? 1 : dim[i] > 64 ? 64 : dim[i];
  }
  space = rank == 7 ? H5Screate(H5S_NULL) : rank == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(rank, dim, NULL);
  const int storage = (int)fuzz_below(b, 6);
  if (storage >= 1 && rank > 0 && rank < 7) H5Pset_chunk(list, rank, chunk);
  if (storage >= 2) H5Pset_deflate(list, 1);
  if (storage >= 3) H5Pset_fletcher32(list);
  if (storage == 4) H5Pset_shuffle(list);
  if (storage == 5) H5Pset_nbit(list);
  H5Pset_alloc_time(list, H5D_ALLOC_TIME_INCR);
  if (storage == 0 && rank > 0) H5Pset_alloc_time(list, H5D_ALLOC_TIME_LATE); /* nothing of it is in the file until it is written */
  if (H5Lexists(file, path, H5P_DEFAULT) > 0) H5Ldelete(file, path, H5P_DEFAULT);
  hid_t d = H5Dcreate2(file, path, type, space, H5P_DEFAULT, list, H5P_DEFAULT);
  if (d >= 0) H5Dclose(d);
  if (space >= 0) H5Sclose(space);
  H5Pclose(list);
  H5Tclose(type);
}

/* Some elements of a dataset become a value each. */
static void fill_dataset(hid_t file, const char *path, fuzz_bytes *b) {
  hid_t d = H5Dopen2(file, path, H5P_DEFAULT);
  if (d < 0) return;
  hid_t space = H5Dget_space(d);
  hsize_t dim[H5S_MAX_RANK] = {0}, count = 1; /* HDF5's own count of them may wrap around to a small one */
  const int rank = H5Sget_simple_extent_dims(space, dim, NULL);
  for (int i = 0; i < rank && count <= 4096; i++) count = dim[i] <= 4096 ? count * dim[i] : 4097;
  if (rank >= 0 && count > 0 && count <= 4096) {
    double *values = calloc((size_t)count, sizeof *values);
    if (H5Dread(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0) {
      const int n = 1 + (int)fuzz_below(b, 4);
      for (int i = 0; i < n; i++) {
        const size_t at = (size_t)(fuzz_u8(b) | fuzz_u8(b) << 8) % (size_t)count;
        values[at] = fuzz_below(b, 2) == 0 ? fuzz_real(b) : (double)fuzz_int(b);
      }
      H5Dwrite(d, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values);
    }
    free(values);
  }
  H5Sclose(space);
  H5Dclose(d);
}

static void link_to(hid_t file, const char *target, const char *path, fuzz_bytes *b) {
  switch (fuzz_below(b, 3)) {
    case 0:
      H5Lcreate_hard(file, target, file, path, H5P_DEFAULT, H5P_DEFAULT);
      break;
    case 1:
      H5Lcreate_soft(target, file, path, H5P_DEFAULT, H5P_DEFAULT);
      break;
    default:
      H5Lcreate_external("elsewhere.h5", target, file, path, H5P_DEFAULT, H5P_DEFAULT);
  }
}

static void rename_attribute(hid_t file, const char *path, const char *from, const char *to) {
  hid_t object = H5Oopen(file, path, H5P_DEFAULT);
  if (object < 0) return;
  H5Arename(object, from, to);
  H5Oclose(object);
}

static void edit_once(const fuzz_base *base, hid_t file, fuzz_bytes *b) {
  char text[600], name[64], other[64];
  const int kind = (int)fuzz_below(b, 16);
  const char *object = pick_object(base, b);
  switch (kind) {
    case 0:
    case 1:
    case 2:
      set_int(file, object, pick_attribute(base, b, name), b);
      break;
    case 3:
      set_real(file, object, pick_attribute(base, b, name), b);
      break;
    case 4:
    case 5:
      set_text(file, object, pick_attribute(base, b, name), b);
      break;
    case 6:
      set_any(file, object, pick_attribute(base, b, name), b);
      break;
    case 7:
      H5Adelete_by_name(file, object, pick_attribute(base, b, name), H5P_DEFAULT);
      break;
    case 8:
      if (strcmp(object, "/") != 0) H5Ldelete(file, object, H5P_DEFAULT);
      break;
    case 9:
      link_to(file, object, pick_path(base, b, text), b);
      break;
    case 10: {
      hid_t group = H5Gcreate2(file, pick_path(base, b, text), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
      if (group >= 0) H5Gclose(group);
      break;
    }
    case 11:
    case 12: {
      const char *path = pick_path(base, b, text);
      if (strcmp(path, "/") != 0) put_dataset(file, path, b);
      break;
    }
    case 13:
      fill_dataset(file, object, b);
      break;
    case 14:
      if (strcmp(object, "/") != 0) H5Lmove(file, object, file, pick_path(base, b, text), H5P_DEFAULT, H5P_DEFAULT);
      break;
    default:
      rename_attribute(file, object, pick_attribute(base, b, name), pick_attribute(base, b, other));
  }
}

void fuzz_edit(const fuzz_base *base, const fuzz_file *file, fuzz_bytes *b) {
  enum { MOST = 16, TIDY = 256 };
  static int runs;
  H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
  fuzz_file_set(file, base->bytes, base->n);
  hid_t f = H5Fopen(file->path, H5F_ACC_RDWR, H5P_DEFAULT);
  if (f < 0) {
    H5Eprint2(H5E_DEFAULT, stderr);
    abort();
  }
  for (int i = 0; i < MOST && b->at < b->end; i++) edit_once(base, f, b);
  H5Fclose(f);
  if (++runs % TIDY == 0) H5garbage_collect(); /* the library keeps what it frees */
}
