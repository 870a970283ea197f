#!/usr/bin/env python3
"""run_docs.py finds what is wrong: each mistake planted in a small page, which passes without it.

    prove_docs.py LOCKSTEP
"""
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "../..")
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
        environment = {name: value for name, value in os.environ.items() if name != "LOCKSTEP_SKIP_NOTHING"}
        done = subprocess.run([sys.executable, os.path.join(HERE, "run_docs.py"), lockstep, "--root", root, name],
                              capture_output=True, text=True, env=environment)
        return done.returncode, done.stdout + done.stderr


def main():
    lockstep, missed = os.path.abspath(sys.argv[1]), 0
    status, said = run(lockstep, SOUND, EXCUSED)
    if status != 0:
        sys.exit(f"the sound page: {said}")
    cases = [(SOUND.replace(old, new, 1), EXCUSED, told, old, SOUND) for old, new, told in MISTAKES]
    cases += [(SOUND, EXCUSED.replace(old, new, 1) if old else EXCUSED + new, told, old or new, EXCUSED) for old, new, told in LISTED]
    for page, listed, told, old, within in cases:
        if page == SOUND and listed == EXCUSED:
            sys.exit(f"'{old}' changes nothing")
        status, said = run(lockstep, page, listed)
        if (status != 0) != (told is not None) or (told or "") not in said:
            missed += 1
            print(f"missed: '{old}', expected '{told}', exit {status}: {said}")
    try:
        import yaml  # noqa: F401
        import yamllint  # noqa: F401
        recipes = OF_RECIPES
    except ImportError as error:
        print(f"recipes are not tried: {error}")
        recipes = []
    if recipes and run(lockstep, "# A page\n", "", RECIPE)[0] != 0:
        sys.exit(f"the sound recipe: {run(lockstep, '', '', RECIPE)[1]}")
    for old, new, told in recipes:
        status, said = run(lockstep, "# A page\n", "", RECIPE.replace(old, new, 1))
        cases.append(old)
        if status == 0 or told not in said:
            missed += 1
            print(f"missed: '{old}', expected '{told}', exit {status}: {said}")
    print(f"{len(cases)} planted, {missed} missed")
    sys.exit(1 if missed else 0)


main()
