#!/usr/bin/env python3
"""run_docs.py finds what is wrong: each mistake planted in a small page, which passes without it.

    prove_docs.py LOCKSTEP
"""
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
sys.path.insert(0, HERE)
import run_docs  # noqa: E402  (beside this file)

SOUND = """# A page

See [the heading](page.md#a-heading), [README](../README.md) and `lockstep verify --path`.

## A heading

```sh
lockstep info fixtures/golden/dflash_rounds.h5
lockstep info none.h5    # exit 3
echo one \\
  two
lockstep verify --path cuda fixtures/golden/dflash_rounds.h5
```

```text
layer    dflash_context_kv
  hidden 96
...
one two
```

```console
$ echo three
three
$ printf 'four\\nfive\\n'
four
five
```

```c
int x;
```
"""
EXCUSED = "docs/page.md | lockstep verify --path cuda | a GPU\n"
MISTAKES = [  # what stands there, what is put in its place, what is said
    ("dflash_rounds.h5\nlockstep info none", "dflash_round.h5\nlockstep info none", "ended with 3, not 0"),
    ("    # exit 3", "", "ended with 3, not 0"),
    ("# exit 3", "# exit 4", "ended with 3, not 4"),
    ("hidden 96", "hidden 97", "'hidden 97' is not printed"),
    ("layer    dflash_context_kv\n  hidden 96", "  hidden 96\nlayer    dflash_context_kv", "is not printed after the line before it"),
    ("one two\n```", "one three\n```", "'one three' is not printed"),
    ("\nthree\n", "\ntree\n", "'echo three' printed: three"),
    ("four\nfive\n```", "four\n```", "printed: four"),
    ("--path cuda fix", "--path cuda --steps 1 fix", "lockstep verify has no option --steps"),
    ("lockstep verify --path cuda", "lockstep verfy --path cuda", "ended with 2, not 0"),
    ("```c\n", "```\n", "a block of ''"),
    ("```c\n", "```shell\n", "a block of 'shell'"),
    ("int x;\n```\n", "int x;\n", "a block without an end"),
    ("(../README.md)", "(../READ.md)", "the link to ../READ.md leads nowhere"),
    ("#a-heading", "#another-heading", "has no such heading"),
    ("`lockstep verify --path`", "`lockstep verify --pathes`", "has the option --pathes"),
    ("lockstep verify --path cuda fixtures/golden/dflash_rounds.h5\n", "", "docs/page.md has no command 'lockstep verify --path cuda'"),
    ("echo one", "scripts/none && echo one", "ended with 127, not 0"),
]
LISTED = [  # the same in the list of what is not run
    ("", "docs/page.md | lockstep info none | a reason\n", None),
    (EXCUSED, "", "ended with 4, not 0"),
    ("| a GPU", "| needs bash os", "ended with 4, not 0"),
    ("| a GPU", "| needs no_such_program", None),
    ("| a GPU", "| instead: false", "ended with 1, not 0"),
    ("page.md | lockstep verify --path cuda", "page.md | lockstep verify --path cudas", "has no command 'lockstep verify --path cudas'"),
]


RECIPE = """---
name: a recipe
jobs:
  one:
    steps:
      - uses: actions/checkout@v4
      - run: |
          scripts/setup
          build/release/lockstep verify --path emu a.h5
"""
OF_RECIPES = [  # likewise
    ("    steps:\n", "    steps\n", "syntax error"),
    ("verify --path", "verify --paths", "lockstep verify has no option --paths"),
    ("lockstep verify", "lockstep verfy", "lockstep has no command 'verfy'"),
    ("scripts/setup", "scripts/set-up", "scripts/set-up does not exist"),
    ("a.h5", "'a.h5", "unexpected EOF"),
    ("jobs:", "job:", "is no workflow"),
    ("uses: actions", "use: actions", "neither runs nor uses"),
]


def run(lockstep, page, listed, recipe=None):
    """What run_docs.py calls wrong; empty: nothing."""
    with tempfile.TemporaryDirectory() as root:
        for name in ("include", "fixtures", "scripts", "cmake", "README.md", ".ci"):
            os.symlink(os.path.join(ROOT, name), os.path.join(root, name))
        os.makedirs(os.path.join(root, "docs"))
        os.makedirs(os.path.join(root, "tests/docs"))
        name = "docs/page.md" if recipe is None else "docs/ci.md"
        with open(os.path.join(root, name), "w") as f:
            f.write(page)
        if recipe is not None:
            os.makedirs(os.path.join(root, "docs/examples/ci"))
            with open(os.path.join(root, "docs/examples/ci/one.yml"), "w") as f:
                f.write(recipe)
        with open(os.path.join(root, "tests/docs/not_run.txt"), "w") as f:
            f.write(listed)
        run_docs.wrong.clear()
        run_docs.Docs(lockstep, root).check_all([name])
        return "\n".join(run_docs.wrong)


def main():
    lockstep, missed = os.path.abspath(sys.argv[1]), 0
    os.environ.pop("LOCKSTEP_SKIP_NOTHING", None)
    cases = [(old, told, SOUND.replace(old, new, 1), EXCUSED, None) for old, new, told in MISTAKES]
    cases += [(old or new, told, SOUND, EXCUSED.replace(old, new, 1) if old else EXCUSED + new, None) for old, new, told in LISTED]
    try:
        import yaml  # noqa: F401
        import yamllint  # noqa: F401
        cases += [(old, told, "# A page\n", "", RECIPE.replace(old, new, 1)) for old, new, told in OF_RECIPES]
    except ImportError as error:
        print(f"recipes are not tried: {error}")
    for sound in ((SOUND, EXCUSED, None), ("# A page\n", "", RECIPE)):
        said = run(lockstep, *sound)
        if said:
            sys.exit(f"what is sound: {said}")
    for old, told, page, listed, recipe in cases:
        if (page, listed, recipe) == (SOUND, EXCUSED, None) or recipe == RECIPE:
            sys.exit(f"'{old}' changes nothing")
        said = run(lockstep, page, listed, recipe)
        if bool(said) != (told is not None) or (told or "") not in said:
            missed += 1
            print(f"missed: '{old}', expected '{told}': {said}")
    lost = (("commands", (9, 0), "expected 9 commands and 0 lines"), ("lines", (0, 9), "expected 0 commands and 9 lines"))
    for what, fewest, told in lost:
        run_docs.FEWEST["docs/page.md"] = fewest
        said = run(lockstep, SOUND, EXCUSED)
        if told not in said:
            missed += 1
            print(f"missed: too few {what}: {said}")
    print(f"{len(cases) + len(lost)} planted, {missed} missed")
    sys.exit(1 if missed else 0)


main()
