/* emu_stream: streams and graphs as lists of things to do. Inside the emulator only. */
#ifndef EMU_STREAM_H
#define EMU_STREAM_H

#include <memory>
#include <vector>

#include "emu_fiber.h"

namespace LSG_NS {

/* One thing enqueued: a launch, a copy, a fill, a product. */
class emu_op {
 public:
  virtual ~emu_op() = default;
  virtual bool run(char *text) = 0; /* false: text (EMU_TEXT_BYTES) says why */
};

/* Runs the op at once, or keeps it where the stream is being captured. A failure is kept for lsg_sync; after one nothing runs. */
lsg_status emu_enqueue(lsg_stream stream, std::unique_ptr<emu_op> op);

/* Sets the line of lsg_error_text. */
__attribute__((format(printf, 2, 3))) lsg_status emu_error(lsg_status status, const char *format, ...);

/* Whether [p, p + bytes) is device memory, all of it; else the error text says what it is, with `what` in front. */
lsg_status emu_expect_device(const char *what, const void *p, size_t bytes);

}  // namespace LSG_NS

#endif
