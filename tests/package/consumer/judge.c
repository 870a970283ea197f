/* judge PATHS FIXTURE REPORT: what liblockstep makes of a fixture, in one line; ends with its status. */
#include <lockstep/lockstep.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  lockstep_options options = LOCKSTEP_OPTIONS_INIT;
  options.paths = argv[1];
  options.flags = LOCKSTEP_PROBE;
  lockstep_report *report = lockstep_report_new(0);
  lockstep_finding first = LOCKSTEP_FINDING_INIT;
  const int32_t status = lockstep_verify(report, argv[2], &options, &first);
  printf("lockstep %s: status %d, ", lockstep_version(), status);
  if (first.found)
    printf("step %lld %s: %s\n", (long long)first.step, first.name, first.where);
  else
    printf("%s\n", status == LOCKSTEP_PASSES ? "nothing found" : lockstep_report_why(report));
  if (status != LOCKSTEP_WRONG_CALL && status != LOCKSTEP_NO_PATH) {
    if (lockstep_report_status(report) != status) return 9;
    if (lockstep_report_write(report, LOCKSTEP_JSON, argv[3]) != LOCKSTEP_PASSES) return 8;
  }
  lockstep_report_free(report);
  return status;
}
