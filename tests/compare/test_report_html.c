/* The HTML page: complete, well formed, from one file, and small. */
#include <png.h>
#include <unistd.h>

#include "compare/report_html.h"
#include "json_check.h"
#include "report_scene.h"

static void scratch(char path[256], const char *name) { snprintf(path, 256, "%s/html-%d-%s.html", LS_BINARY_DIR, (int)getpid(), name); }

static char *page_of(const ls_report *report, const ls_report_options *options, const char *file) {
  MUST(ls_report_html(report, options, file, err));
  char *text = json_file_text(file);
  cr_assert_not_null(text);
  return text;
}

#define expect_has(text, words) cr_expect((strstr(text, words)) != NULL, "expected '%s'", words)

/* A detail with all there is in one. */
static ls_detail *detail_of(void) {
  static ls_detail d;
  memset(&d, 0, sizeof d);
  d.base = 2176, d.stride = 1;
  strcpy(d.row_name, "row");
  ls_map_start(&d.map, 7, 64, 32, false);
  ls_map_mark(&d.map, 3 * 64 + 40, 7.5, false);
  d.ring = (ls_ring_view){.capacity = 24, .n = 3};
  d.ring.run[0] = (ls_ring_run){.slot = 0, .slots = 20, .expected = 2160, .held = -1, .status = LS_SLOT_KEPT};
  d.ring.run[1] = (ls_ring_run){.slot = 20, .slots = 3, .expected = 2180, .held = 2156, .status = LS_SLOT_STALE};
  d.ring.run[2] = (ls_ring_run){.slot = 23, .slots = 1, .expected = -1, .held = -1, .status = LS_SLOT_EMPTY};
  d.choice = (ls_choice_view){.row = 2, .k = 1, .eligible = 2, .equals = 2, .n = 2};
  d.choice.item[0] = (ls_choice_item){.position = 17, .place = 0, .score = {0.5, 0.5}, .in = {true, false}};
  d.choice.item[1] = (ls_choice_item){.position = 19, .place = 1, .score = {0.5, 0.5}, .in = {false, true}};
  return &d;
}

static ls_report *with_details(void) {
  ls_report *report = everything();
  open_file(report, "c.h5");
  all_pass(report);
  ls_result r = with(LS_FAIL), passing = with(LS_PASS);
  ls_spread_add_steps(&r.spread, 5, 1, 2);
  r.spread.lonely = 3;
  MUST(ls_report_stage(report, 7, "k_rope", 1, "golden-emu", LS_ISOLATED, &r, err));
  MUST(ls_report_detail(report, 7, "k_rope", 1, "golden-emu", LS_ISOLATED, &r, detail_of(), err));
  MUST(ls_report_detail(report, 7, "v_proj", 1, "golden-emu", LS_ISOLATED, &passing, detail_of(), err));
  return report;
}

Test(report_html, a_page_of_everything_says_everything) {
  char file[256];
  scratch(file, "everything");
  ls_report *report = with_details();
  const char *const known[] = {"*:v_ring.1:*", "*:ctx_normed:*", "nothing", NULL};
  ls_report_options options = plain;
  options.known_failures = known;
  char *text = page_of(report, &options, file);
  static const char *const words[] = {
      "<title>Lockstep: FAIL, 0 of 3 fixtures pass</title>",
      "3 fixtures: 0 pass, 2 fail, 1 not finished. Exit status 3 (bad fixture)",
      "a &quot;b&quot;.h5",
      "First divergence:</b> step 7, k_rope.1, layer 1 row 7 (position 2183, slot 7) head 2 channel 17 (golden-emu, isolated: introduced "
      "here)",
      "<dt>values</dt><dd>golden 1.25, emu -0.5, apart 1.75, bound 0.007812 (750% of it)</dd>",
      "lockstep verify --path emu --threads 2 --stage k_rope.1 --step 7 'some/where/a &quot;b&quot;.h5'",
      "<b>42%</b> <span>99.9%: 12%</span> <span>equal 99.60%</span> <span>1 step</span>",
      "Not finished (bad fixture): no /config",
      "not UTF-8: ??",
      "passes now</b>, take it off the list",
      "property write-set",
      "slot 7</dd>",
      /* the panels */
      "Worst use of the bound by row and head: 1 of 14 cells hold an element outside its bound",
      "By row and channel within the head: 1 of 224 cells",
      "down: rows 0 to 6, positions 2176 to 2182; across: heads 0 to 1",
      "5&#8211;8 above</th>",
      "not finite on one side</th><td><i class=\"lonely\"",
      "stale: what the slot held before (3)",
      "<b>2181</b><em>2157</em>",
      "Query 2: the scores around place 1 of 2 that may be chosen; 2 share the last place's score",
      "<tr class=\"last alone \"><td>1</td><td>17</td><td>golden</td>",
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect_has(text, words[i]);
  free(text);
  remove(file);
  ls_report_free(report);
}

/* A ring of more slots than there is room for cells: a strip, a list of runs, and what the list leaves out. */
Test(report_html, a_large_ring_is_runs_of_slots) {
  char file[256];
  scratch(file, "strip");
  ls_report *report = new_report();
  open_file(report, "large.h5");
  ls_result r = with(LS_FAIL);
  ls_detail *d = detail_of();
  d->ring = (ls_ring_view){.capacity = 2176, .n = 50, .left_out = 76};
  for (int i = 0; i < 49; i++)
    d->ring.run[i] = (ls_ring_run){.slot = 10 * i, .slots = 10, .expected = 4000 + 10 * i, .held = -1, .status = LS_SLOT_KEPT};
  d->ring.run[5].status = LS_SLOT_CLEARED, d->ring.run[6].status = LS_SLOT_UNKNOWN;
  d->ring.run[7] = (ls_ring_run){.slot = 70, .slots = 1, .expected = 4070, .held = 1894, .status = LS_SLOT_STALE};
  d->ring.run[49] = (ls_ring_run){.slot = 490, .slots = 1610, .expected = -1, .held = -1, .status = LS_SLOT_EMPTY};
  MUST(ls_report_stage(report, 7, "k_ring", -1, "golden-emu", LS_CASCADED, &r, err));
  MUST(ls_report_detail(report, 7, "k_ring", -1, "golden-emu", LS_CASCADED, &r, d, err));
  char *text = page_of(report, &plain, file);
  static const char *const words[] = {
      "Ring of 2176 slots and their positions",
      "<i class=\"s-zero\" style=\"flex-grow:10\"></i>",
      "<i style=\"flex-grow:76\"></i>", /* the runs that the view left out */
      "<tr><td>70</td><td>4070</td><td>1894</td><td><i class=\"dot s-stale\"></i>stale: what the slot held before</td></tr>",
      "<tr><td>80&#8211;89</td><td>4080&#8211;4089</td><td>&#8211;</td>",
      "and 1696 more slots", /* run 48, run 49 and those left out */
  };
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect_has(text, words[i]);
  free(text);
  remove(file);
  ls_report_free(report);
}

/* As XML, which has no mercy: every element closed, every quote and bracket from elsewhere escaped. */
Test(report_html, the_page_is_well_formed) {
  if (system("command -v xmllint >/dev/null") != 0) cr_skip_test("xmllint is not here (scripts/setup --ci installs it)");
  char file[256], command[1024];
  scratch(file, "formed");
  ls_report *report = with_details();
  MUST(ls_report_note(report, "</dl></section><script>alert(1)</script>&<b \x01 \xff", err));
  ls_result r = with(LS_FAIL);
  strcpy(r.note, "<i>\"'&");
  MUST(ls_report_stage(report, 7, "k_proj", 1, "<a>-&b", LS_ISOLATED, &r, err));
  MUST(ls_report_detail(report, 7, "k_proj", 1, "<a>-&b", LS_ISOLATED, &r, detail_of(), err));
  MUST(ls_report_property(report, 7, "<u>", "</td>", &r, err));
  char *text = page_of(report, &plain, file);
  cr_expect_null(strstr(text, "<script>alert"));
  snprintf(command, sizeof command, "xmllint --noout --nonet %s 2>&1 | head -5 >&2; xmllint --noout --nonet %s 2>/dev/null", file, file);
  cr_expect_eq(system(command), 0);
  free(text);
  remove(file);
  ls_report_free(report);
}

Test(report_html, nothing_is_loaded_from_elsewhere) {
  char file[256];
  scratch(file, "alone");
  ls_report *report = with_details();
  char *text = page_of(report, &plain, file);
  cr_expect(!strstr(text, "http:") && !strstr(text, "https:") && !strstr(text, "url(") && !strstr(text, "@import") &&
            !strstr(text, "<link"));
  for (const char *at = text; (at = strstr(at, "src=")); at++) cr_expect(strncmp(at, "src=\"data:image/png;base64,", 27) == 0, "%.60s", at);
  for (const char *at = text; (at = strstr(at, "href=")); at++) cr_expect(strncmp(at, "href=\"#", 7) == 0, "%.60s", at);
  free(text);
  remove(file);
  ls_report_free(report);
}

/* However much fails, in however many steps. */
Test(report_html, the_page_stays_below_three_megabytes) {
  char file[256], name[32];
  scratch(file, "large");
  ls_report *report = new_report();
  open_file(report, "a.h5");
  static ls_detail d;
  ls_random random = {.seed = 3};
  for (int i = 0; i < 200; i++) {
    ls_result r = with(i % 2 ? LS_FAIL : LS_PASS);
    r.use = i % 2 ? 3 : 0.001 * i;
    snprintf(name, sizeof name, "stage_%d", i);
    memset(&d, 0, sizeof d);
    strcpy(d.row_name, "row");
    ls_map_start(&d.map, 4096, 64 * 512, 512, false);
    for (size_t k = 0; k < sizeof d.map.by_channel.cell; k++) {
      d.map.by_head.cell[k] = (uint8_t)ls_random_range(&random, 0, LS_CELLS - 1);
      d.map.by_channel.cell[k] = (uint8_t)ls_random_range(&random, 0, LS_CELLS - 1);
    }
    for (int step = 0; step < 3; step++) {
      MUST(ls_report_stage(report, step, name, 0, "ref-emu", LS_ISOLATED, &r, err));
      MUST(ls_report_detail(report, step, name, 0, "ref-emu", LS_ISOLATED, &r, &d, err));
    }
  }
  char *text = page_of(report, &plain, file);
  cr_expect(strlen(text) < 3000000 && strstr(text, "stage_199") && strstr(text, "data:image/png"), "%zu bytes", strlen(text));
  free(text);
  remove(file);
  ls_report_free(report);
}

static int panels(const char *text) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, "<details class=\"panel\"")); at++) n++;
  return n;
}

Test(report_html, of_what_passes_the_stages_that_use_most_are_kept) {
  char file[256], name[32], words[64];
  scratch(file, "kept");
  ls_report *report = new_report();
  open_file(report, "a.h5");
  static ls_detail d;
  memset(&d, 0, sizeof d);
  ls_map_start(&d.map, 2, 8, 0, false);
  for (int i = 0; i < 40; i++) {
    ls_result r = with(LS_PASS);
    r.use = (i * 17 % 40) / 64.0; /* 0 once: an empty map is not shown */
    snprintf(name, sizeof name, "stage_%d", i);
    MUST(ls_report_stage(report, 1, name, -1, "ref-emu", LS_ISOLATED, &r, err));
    MUST(ls_report_detail(report, 1, name, -1, "ref-emu", LS_ISOLATED, &r, &d, err));
  }
  char *text = page_of(report, &plain, file);
  cr_expect_eq(panels(text), 10, "%d", panels(text));
  for (int i = 0; i < 40; i++) {
    snprintf(words, sizeof words, "<b>stage_%d</b> ref-emu, isolated", i);
    cr_expect_eq(strstr(text, words) != NULL, i * 17 % 40 >= 30, "%s", words);
  }
  free(text);
  remove(file);
  ls_report_free(report);
}

Test(report_html, isolated_maps_come_before_cascaded_ones_unless_they_are_empty) {
  char file[256];
  scratch(file, "modes");
  ls_report *report = new_report();
  open_file(report, "a.h5");
  static ls_detail d;
  memset(&d, 0, sizeof d);
  ls_map_start(&d.map, 2, 8, 0, false);
  for (int i = 0; i < 2; i++) {
    const char *const name = i == 0 ? "k_norm" : "k_rope";
    for (int m = LS_MODES - 1; m >= 0; m--) {
      ls_result r = with(LS_PASS);
      if (m == LS_ISOLATED) r.use = i == 0 ? 0 : 0.01;
      MUST(ls_report_stage(report, 1, name, -1, "ref-emu", (ls_mode)m, &r, err));
      MUST(ls_report_detail(report, 1, name, -1, "ref-emu", (ls_mode)m, &r, &d, err));
    }
  }
  char *text = page_of(report, &plain, file);
  expect_has(text, "<b>k_norm</b> ref-emu, cascaded");
  expect_has(text, "<b>k_rope</b> ref-emu, isolated");
  cr_expect_eq(panels(text), 2);
  free(text);
  remove(file);
  ls_report_free(report);
}

Test(report_html, the_first_failing_step_is_kept) {
  char file[256];
  scratch(file, "first");
  ls_report *report = new_report();
  open_file(report, "a.h5");
  for (int step = 3; step < 9; step++) {
    ls_result r = with(step == 3 ? LS_PASS : LS_FAIL);
    MUST(ls_report_stage(report, step, "k_rope", 0, "ref-emu", LS_ISOLATED, &r, err));
    MUST(ls_report_detail(report, step, "k_rope", 0, "ref-emu", LS_ISOLATED, &r, detail_of(), err));
  }
  char *text = page_of(report, &plain, file);
  cr_expect(strstr(text, "ref-emu, isolated, step 4;") && !strstr(text, "ref-emu, isolated, step 5;"));
  free(text);
  remove(file);
  ls_report_free(report);
}

/* ---- pictures ---- */

static size_t unbase64(uint8_t *to, const char *text) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t n = 0;
  uint32_t group = 0;
  int have = 0;
  for (; *text && *text != '='; text++) {
    group = group << 6 | (uint32_t)(strchr(digits, *text) - digits);
    have += 6;
    if (have >= 8) to[n++] = (uint8_t)(group >> (have -= 8));
  }
  return n;
}

Test(report_html, a_picture_has_a_pixel_a_cell) {
  static uint8_t cells[96 * 127], bytes[1 << 16], pixels[4 * 96 * 127];
  uint32_t colour[12];
  ls_random random = {.seed = 5};
  for (int i = 0; i < 12; i++) colour[i] = (uint32_t)ls_random_u64(&random) | 0xff;
  for (size_t i = 0; i < sizeof cells; i++) cells[i] = (uint8_t)ls_random_range(&random, 0, 11);
  static const int shape[][2] = {{127, 96}, {1, 1}, {2, 1}, {1, 3}, {31, 7}};
  for (size_t s = 0; s < sizeof shape / sizeof *shape; s++) {
    const int across = shape[s][0], down = shape[s][1];
    char *text = report_png_base64(cells, across, down, colour, 12);
    cr_assert_not_null(text);
    const size_t size = unbase64(bytes, text);
    png_image image = {.version = PNG_IMAGE_VERSION};
    cr_assert(png_image_begin_read_from_memory(&image, bytes, size), "%s", image.message);
    image.format = PNG_FORMAT_RGBA;
    cr_assert(image.width == (unsigned)across && image.height == (unsigned)down);
    cr_assert(png_image_finish_read(&image, NULL, pixels, 0, NULL), "%s", image.message);
    for (int i = 0; i < across * down; i++) {
      const uint32_t found =
          (uint32_t)pixels[4 * i] << 24 | (uint32_t)pixels[4 * i + 1] << 16 | (uint32_t)pixels[4 * i + 2] << 8 | pixels[4 * i + 3];
      cr_assert_eq(found, colour[cells[i]], "%d x %d, cell %d", across, down, i);
    }
    free(text);
  }
  cr_expect_null(report_png_base64(cells, 0, 3, colour, 12));
  cr_expect_null(report_png_base64(cells, 3, 3, colour, 300));
}

Test(report_html, a_file_that_cannot_be_written_is_said) {
  ls_report *report = everything();
  ls_error err = {0};
  cr_assert_eq(ls_report_html(report, &plain, LS_BINARY_DIR "/no/such/folder/report.html", &err), LS_USAGE);
  expect_has(err.text, "no/such/folder/report.html");
  ls_report_free(report);
}
