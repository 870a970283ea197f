/* JUnit XML: against the published schema, and failing exactly where the run does. */
#include <mxml.h>
#include <unistd.h>

#include "json_check.h"
#include "report_scene.h"

#define SCHEMA LS_SOURCE_DIR "/tests/compare/schemas/junit-10.xsd"

static void scratch(char path[256], const char *name) { snprintf(path, 256, "%s/junit-%d-%s.xml", LS_BINARY_DIR, (int)getpid(), name); }

static mxml_node_t *written(const ls_report *report, const ls_report_options *options, const char *file) {
  MUST(ls_report_junit(report, options, file, err));
  FILE *in = fopen(file, "r");
  cr_assert_not_null(in);
  mxml_node_t *document = mxmlLoadFile(NULL, in, MXML_OPAQUE_CALLBACK);
  fclose(in);
  cr_assert_not_null(document, "%s is no XML", file);
  return document;
}

static int count_of(mxml_node_t *document, const char *name) {
  int n = 0;
  for (mxml_node_t *e = document; (e = mxmlFindElement(e, document, name, NULL, NULL, MXML_DESCEND));) n++;
  return n;
}

static int number(mxml_node_t *element, const char *attribute) {
  const char *value = mxmlElementGetAttr(element, attribute);
  cr_assert_not_null(value, "no %s", attribute);
  return atoi(value);
}

static bool valid(const char *file) {
  char command[1024];
  snprintf(command, sizeof command, "xmllint --noout --nonet --schema %s %s >/dev/null 2>&1", SCHEMA, file);
  return system(command) == 0;
}

static void need_xmllint(void) {
  if (system("command -v xmllint >/dev/null") != 0) cr_skip_test("xmllint is not here (scripts/setup --ci installs it)");
}

/* The sums are those of the cases, and something fails exactly where the exit status is not 0. */
static void assert_sums(const ls_report *report, const ls_report_options *options, const char *what) {
  char file[256];
  scratch(file, "sums");
  mxml_node_t *document = written(report, options, file),
              *root = mxmlFindElement(document, document, "testsuites", NULL, NULL, MXML_DESCEND);
  const int failures = count_of(document, "failure"), errors = count_of(document, "error"), cases = count_of(document, "testcase");
  cr_expect_eq(number(root, "tests"), cases, "%s", what);
  cr_expect_eq(number(root, "failures"), failures, "%s", what);
  cr_expect_eq(number(root, "errors"), errors, "%s", what);
  int skipped = 0, suite_cases = 0;
  for (mxml_node_t *s = document; (s = mxmlFindElement(s, document, "testsuite", NULL, NULL, MXML_DESCEND));) {
    cr_expect_eq(number(s, "tests"), count_of(s, "testcase"), "%s", what);
    skipped += number(s, "skipped"), suite_cases += number(s, "tests");
  }
  cr_expect(skipped == count_of(document, "skipped") && suite_cases == cases, "%s", what);
  const ls_status status = ls_report_status(report, options);
  cr_expect_eq(failures + errors > 0, status != LS_OK, "%s: %d failures and errors, exit status %d", what, failures + errors, (int)status);
  mxmlDelete(document);
  remove(file);
}

Test(report_junit, it_fails_exactly_where_the_run_does) {
  const char *const known[] = {"a.h5:k_rope.1:golden-emu", NULL}, *const other[] = {"a.h5:v_ring:ref-emu", "nothing", NULL};
  for (int verdict = 0; verdict < LS_VERDICTS; verdict++) {
    for (int passing = 0; passing < 2; passing++) {
      for (int how = 0; how < 8; how++) {
        char what[64];
        snprintf(what, sizeof what, "%s, %d, %d", ls_verdict_name((ls_verdict)verdict), passing, how);
        ls_report_options options = plain;
        options.allow_mistrusted = how & 1;
        if (how & 2) options.known_failures = how & 4 ? other : known;
        ls_report *report = new_report();
        open_file(report, "a.h5");
        if (passing) all_pass(report);
        if (how & 4) property(report, 1, "write-set", "emu", (ls_verdict)verdict, "a property");
        stage(report, 8, "k_rope", 1, "golden-emu", LS_ISOLATED, (ls_verdict)verdict);
        assert_sums(report, &options, what);
        ls_report_free(report);
      }
    }
  }
}

Test(report_junit, a_run_that_stopped_or_ran_nothing_fails_too) {
  for (int status = 1; status <= 5; status++) {
    ls_report *report = new_report();
    if (status > 1) open_file(report, "a.h5");
    if (status > 1) all_pass(report);
    if (status > 1) MUST(ls_report_stop(report, (ls_status)status, "it stopped", err));
    assert_sums(report, &plain, "stopped");
    ls_report_free(report);
  }
}

Test(report_junit, a_report_of_everything_conforms_to_the_published_schema) {
  need_xmllint();
  char file[256];
  scratch(file, "everything");
  ls_report *report = everything();
  const char *const known[] = {"*:v_ring.1:*", "*:ctx_normed:*", "nothing", NULL};
  ls_report_options options = plain;
  options.known_failures = known;
  MUST(ls_report_junit(report, &options, file, err));
  cr_expect(valid(file));
  assert_sums(report, &options, "everything");

  /* the check itself */
  static const char *const change[][2] = {{"<testcase classname", "<testcase klassname"},
                                          {"<failure ", "<failed "},
                                          {" tests=\"", " test=\""},
                                          {"<property name", "<property nome"}};
  char *text = json_file_text(file);
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    char *place = strstr(strstr(text, "<testsuite "), change[i][0]);
    cr_assert_not_null(place, "%s", change[i][0]);
    FILE *out = fopen(file, "w");
    fprintf(out, "%.*s%s%s", (int)(place - text), text, change[i][1], place + strlen(change[i][0]));
    fclose(out);
    cr_expect(!valid(file), "%s was accepted", change[i][1]);
  }
  free(text);
  remove(file);
  ls_report_free(report);
}

Test(report_junit, a_failure_says_where_what_and_how_to_repeat_it) {
  char file[256];
  scratch(file, "failure");
  ls_report *report = new_report();
  open_file(report, "some/a \"b\" <&>.h5");
  MUST(ls_report_note(report, "bytes \xff\x01 and \xc3\xa9", err));
  all_pass(report);
  ls_result r = with(LS_FAIL);
  strcpy(r.note, "slot <3> & \"more\" \x02");
  MUST(ls_report_stage(report, 7, "k_rope", 1, "golden-emu", LS_ISOLATED, &r, err));
  mxml_node_t *document = written(report, &plain, file);
  mxml_node_t *failure = mxmlFindElement(document, document, "failure", NULL, NULL, MXML_DESCEND);
  cr_assert_not_null(failure);
  const char *text = mxmlGetOpaque(failure), *message = mxmlElementGetAttr(failure, "message");
  static const char *const words[] = {"where    layer 1 row 7 (position 2183, slot 7) head 2 channel 17", "values   golden 1.25   emu -0.5",
                                      "note     slot <3> & \"more\" ?", "origin   introduced here",
                                      "repeat   lockstep verify --path emu --threads 2 --stage k_rope.1 --step 7 'some/a \"b\" <&>.h5'"};
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) cr_expect_not_null(strstr(text, words[i]), "%s in:\n%s", words[i], text);
  cr_expect_not_null(strstr(message, "step 7: FAIL, introduced here: layer 1 row 7"), "%s", message);
  cr_expect_str_eq(mxmlElementGetAttr(mxmlGetParent(failure), "name"), "k_rope.1 golden-emu isolated");
  mxml_node_t *note = mxmlFindElement(document, document, "property", "name", "note", MXML_DESCEND);
  cr_expect_str_eq(mxmlElementGetAttr(note, "value"), "bytes ?? and \xc3\xa9");
  mxmlDelete(document);
  remove(file);
  ls_report_free(report);
}

Test(report_junit, a_file_that_cannot_be_written_is_said) {
  ls_report *report = everything();
  ls_error err = {0};
  cr_assert_eq(ls_report_junit(report, &plain, LS_BINARY_DIR "/no/such/folder/report.xml", &err), LS_USAGE);
  cr_expect_not_null(strstr(err.text, "no/such/folder/report.xml"));
  ls_report_free(report);
}
