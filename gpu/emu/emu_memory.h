/* emu_memory: device memory of the emulator: who owns which addresses. Thread-safe.
 *
 *   [ 16 MiB, no access ][ slack | the buffer, to its end + at most 15 bytes | ][ 16 MiB, no access ]
 *
 * The buffer ends at the second guard (16-byte granularity, so it begins at a multiple of 256 where its size is one), is filled with 0xFF
 * bytes, and so is what is left of its first and last page, which emu_memory_check looks at. A freed buffer stays inaccessible
 * until a good deal more has been freed. */
#ifndef EMU_MEMORY_H
#define EMU_MEMORY_H

#include <stddef.h>
#include <stdint.h>

namespace lsg_emu {

enum { EMU_PAGE = 4096, EMU_GUARD_BYTES = 16 << 20 };

/* 0 or an errno. bytes may be 0. */
int emu_memory_new(void **data, size_t bytes, const char *name);
bool emu_memory_free(void *data); /* false: no live buffer begins there */

enum emu_where { EMU_NOWHERE, EMU_LIVE, EMU_FREED };
/* Which buffer [p, p + bytes) lies in, all of it (a pointer to the end counts where bytes is 0). EMU_NOWHERE else. */
emu_where emu_memory_find(const void *p, size_t bytes);

/* "buffer 'x' (400 bytes), 0 bytes past its end": what address p is to the buffers and guards there are; false where it is none's. */
bool emu_memory_describe(char *text, size_t size, const void *p);

/* Looks at the patterns around every live buffer; false, with a line, where one was written over (it is mended). */
bool emu_memory_check(char *text, size_t size);

/* Whether address p is mapped in this process. */
bool emu_is_mapped(const void *p);

/* Inaccessible pages are part of the design: valgrind is not to report what the fault handler reports. */
int emu_guard(void *page, size_t bytes);
void emu_treat_as_written(void *p, size_t bytes); /* to valgrind; nothing else */

}  // namespace lsg_emu

#endif
