/* ls_status: what a call came to, and the one line that says why.
 *
 * Functions return an ls_status and take an ls_error as their last argument (NULL: the text is not wanted). The first message stays:
 * a caller that adds nothing just relays it. Nothing here aborts or exits; only main() turns a status into an exit code. */
#ifndef LS_STATUS_H
#define LS_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

/* The values up to LS_INTERNAL, and LS_INTERRUPTED, are the documented exit codes of the command line. */
typedef enum {
  LS_OK = 0,
  LS_DIVERGED = 1,    /* a comparison failed, or proved nothing */
  LS_USAGE = 2,       /* the caller's words are off */
  LS_BAD_FIXTURE = 3, /* an input file is not what the format says */
  LS_UNAVAILABLE = 4, /* the asked-for device, path or BLAS cannot be used here */
  LS_INTERNAL = 5,    /* out of memory, a failed device call, a broken invariant */
  LS_REFUSED = 6,     /* a layer operation was refused and its state left as it was: a result, not an error */
  LS_INTERRUPTED = 130
} ls_status;

enum { LS_ERROR_TEXT = 768 };

typedef struct {
  ls_status status;
  char text[LS_ERROR_TEXT]; /* one line, no newline; empty while status is LS_OK */
} ls_error;

/* Records status and the formatted line unless err already holds one. Returns status. err may be NULL. */
#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
ls_status
ls_fail(ls_error *err, ls_status status, const char *format, ...);

/* The word for a status: "ok", "diverged", "refused", ... Never NULL. */
const char *ls_status_name(ls_status status);

/* Relays anything but LS_OK to the caller. */
#define LS_TRY(call)                                  \
  do {                                                \
    ls_status ls_try_status = (call);                 \
    if (ls_try_status != LS_OK) return ls_try_status; \
  } while (0)

/* The same for functions with an `out:` label and a local `ls_status status`. */
#define LS_TRY_OUT(call)           \
  do {                             \
    status = (call);               \
    if (status != LS_OK) goto out; \
  } while (0)

#ifdef __cplusplus
}
#endif
#endif
