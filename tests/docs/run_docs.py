#!/usr/bin/env python3
"""Every command of README.md and docs/ is run, and does what the text says of it.

    run_docs.py LOCKSTEP [--root TREE] [FILE...]     FILE: of README.md and docs/*.md; default: all

A block says what it is: ```sh holds commands (`# exit N` where a line does not end with 0), the ```text block after it lines of their
output, in their order; ```console holds commands behind "$ " and all that each prints; other languages are not run. The blocks of a file run one
after another in one folder that looks like the tree, with the command on the PATH. tests/docs/not_run.txt lists the commands that cannot run here,
with a reason, with what they need, or with what is run instead; what they ask of the command and of scripts must exist all the same, as must
every option in the text, every link and its heading. The recipes of docs/examples/ci are looked at with docs/ci.md.
"""
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

KNOWN = {"sh", "console", "text", "bash", "c", "cmake", "python", "yaml", "json"}
SHOWN = ("docs", "include", "fixtures", "tests", "scripts", "cmake", "README.md")
FOREIGN = {"--preset", "--build", "--target", "--cflags", "--libs", "--static", "--install", "--sshlogin", "--clock-control"}  # of other programs
FEWEST = {"docs/bring-your-own-kernel.md": (7, 6), "docs/import.md": (8, 0)}  # commands that run, lines that are looked for: a page that lost its blocks

wrong = []


def say(where, text):
    wrong.append(f"{where}: {text}")


VERDICT_ROW = re.compile(r"^\S+ \S+-\S+ (PASS|FAIL) ")
MACHINE = ((re.compile(r"OpenBLAS [\d.]+ \w+"), "OpenBLAS"), (re.compile(r"\d+ workers?"), "workers"),
           (re.compile(r"layer .* \(ref-"), "layer # (ref-"), (re.compile(r", layer .*: it fails"), ", layer #: it fails"))


def folded(line):
    """Blanks as one, and without what depends on the machine: its BLAS, its cores, how close two sums come in a table
    of verdicts, and which of the elements that differ from the reference's is the worst."""
    line = " ".join(line.split())
    for pattern, text in MACHINE:
        line = pattern.sub(text, line)
    return re.sub(r"(?<= )[\d.]+%?(?= |$)", "#", line) if VERDICT_ROW.match(line) else line


class Block:
    def __init__(self, file, line, language):
        self.where, self.language, self.lines = f"{file}:{line}", language, []


def blocks_of(file, text):
    found, block = [], None
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```") and block is None:
            block = Block(file, number, line[3:].strip())
            if block.language not in KNOWN:
                say(block.where, f"a block of '{block.language}': expected one of {', '.join(sorted(KNOWN))}")
        elif line.startswith("```"):
            found.append(block)
            block = None
        elif block is not None:
            block.lines.append(line)
    if block is not None:
        say(block.where, "a block without an end")
    return found


def is_open(command):
    """Whether a quotation goes on in the next line."""
    said = subprocess.run(["bash", "-n"], input=command, capture_output=True, text=True).stderr
    return "unexpected EOF while looking for" in said


def has(name):
    """A program, or a module of the Python that Debian's packages are for."""
    if shutil.which(name) is not None:
        return True
    python = "/usr/bin/python3"
    return os.path.exists(python) and subprocess.run([python, "-c", f"import {name}"], capture_output=True).returncode == 0


def commands_of(block):
    """(command, exit status) of an sh block: a line each, with what follows a backslash or an open quotation."""
    joined, found = "", []
    for line in block.lines:
        joined += line
        if joined.endswith("\\"):
            joined = joined[:-1]
            continue
        if ("'" in joined or '"' in joined) and is_open(joined):
            joined += "\n"
            continue
        if joined.strip() and not joined.strip().startswith("#"):
            status = re.search(r"# exit (\d+)", joined)
            found.append((joined, int(status.group(1)) if status else 0))
        joined = ""
    return found


def options_in(text):
    return set(re.findall(r"--[a-z][a-z0-9-]+", text))


@functools.cache
def run_help(lockstep):
    """{command: its options}, and those that the command has without one."""
    def said(*words):
        return subprocess.run([lockstep, *words, "--help"], capture_output=True, text=True).stdout
    listed, found = said(), {}
    for name, layers in re.findall(r"^  lockstep (\w+)(?: (\w+\|\w+))?", listed, re.M):
        texts = [said(name, layer) for layer in layers.split("|")] if layers else [said(name)]
        found[name] = options_in("".join(texts)) | {"--help"}
    return found, options_in(listed)


class Docs:
    def __init__(self, lockstep, root):
        self.lockstep, self.root, self.used, self.ran, self.judged, self.not_run = lockstep, root, set(), 0, 0, []
        with open(os.path.join(root, "tests/docs/not_run.txt")) as f:
            for line in f:
                if line.strip() and not line.startswith("#"):
                    file, command, reason = (part.strip() for part in line.split("|"))
                    self.not_run.append((file, command, reason))
        self.help, options = run_help(lockstep)
        self.options = options.union(FOREIGN, *self.help.values())
        for folder in ("scripts", ".ci"):
            for name in os.listdir(os.path.join(root, folder)):
                with open(os.path.join(root, folder, name)) as f:
                    self.options |= options_in(f.read())

    def run_command(self, command, folder):
        environment = {**os.environ, "PATH": f"{os.path.dirname(self.lockstep)}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, capture_output=True, timeout=300)
        return done.returncode, (done.stdout + done.stderr).decode(errors="replace")

    def excuse(self, file, command):
        """The reason for which a command is not run, or None."""
        for entry in self.not_run:
            if entry[0] == file and command.startswith(entry[1]):
                self.used.add(entry)
                return entry[2]
        return None

    def look_at(self, where, command):
        """What a command that is not run asks for must exist."""
        for part in re.split(r"&&|\|\||;|\||'", command.split(" #")[0]):
            try:
                words = shlex.split(part)
            except ValueError:
                continue
            words = words[next((i for i, word in enumerate(words) if word == "lockstep"), 0):]
            if words and words[0].startswith("scripts/") and not os.path.exists(os.path.join(self.root, words[0])):
                say(where, f"{words[0]} does not exist")
            if len(words) < 2 or words[0] != "lockstep" or words[1].startswith("--"):
                continue
            if words[1] not in self.help:
                say(where, f"lockstep has no command '{words[1]}'")
                continue
            for word in words[2:]:
                if word.startswith("--") and word.split("=")[0] not in self.help[words[1]]:
                    say(where, f"lockstep {words[1]} has no option {word}")

    def run_block(self, file, block, folder):
        """The output of an sh block, None where none of it ran; console blocks are judged at once."""
        if block.language == "sh":
            output, partly = None, False
            for command, status in commands_of(block):
                reason = self.excuse(file, command)
                if reason is not None and reason.startswith("needs "):
                    missing = [name for name in reason.split()[1:] if not has(name)]
                    if missing and "LOCKSTEP_SKIP_NOTHING" in os.environ:
                        say(block.where, f"'{command}' needs {missing[0]}, which is not here")
                    partly, reason = partly or bool(missing), reason if missing else None
                if reason is not None:
                    self.look_at(block.where, command)
                    if not reason.startswith("instead: "):
                        continue
                    command, status = reason[len("instead: "):], 0
                self.ran += 1
                found, said = self.run_command(command, folder)
                output = (output or "") + said
                if found != status:
                    say(block.where, f"'{command.strip()}' ended with {found}, not {status}: {said[-1500:]}")
            return None if partly else output
        command, expected = None, []
        for line in block.lines + ["$ "]:
            if not line.startswith("$ "):
                expected.append(line)
                continue
            if command is not None:
                self.ran += 1
                said = self.run_command(command, folder)[1].rstrip("\n")
                if said != "\n".join(expected).rstrip("\n"):
                    say(block.where, f"'{command}' printed: {said}")
            command, expected = line[2:], []
        return None

    def judge(self, block, output):
        lines, at = [folded(line) for line in output.split("\n")], 0
        for line in block.lines:
            if not folded(line) or folded(line) == "...":
                continue
            found = next((i for i in range(at, len(lines)) if folded(line) in lines[i]), None)
            if found is None:
                say(block.where, f"'{folded(line)}' is not printed{' after the line before it' if at else ''}: {output[:3000]}")
                return
            at = found + 1
            self.judged += 1

    def check(self, file):
        ran, judged = self.ran, self.judged
        with open(os.path.join(self.root, file)) as f:
            text = f.read()
        blocks = blocks_of(file, text)
        self.check_text(file, text)
        with tempfile.TemporaryDirectory() as folder:
            for name in SHOWN:
                os.symlink(os.path.join(self.root, name), os.path.join(folder, name))
            output = None
            for block in blocks:
                if block.language == "text":
                    if output is not None:
                        self.judge(block, output)
                    output = None
                elif block.language in ("sh", "console"):
                    output = self.run_block(file, block, folder)
        commands, looked_for = FEWEST.get(file, (0, 0))
        if self.ran - ran < commands or self.judged - judged < looked_for:
            say(file, f"expected {commands} commands and {looked_for} lines of output, found {self.ran - ran} and {self.judged - judged}")

    def check_text(self, file, text):
        prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
        for option in sorted(set(re.findall(r"`[^`\n]*?(--[a-z][a-z0-9-]+)", prose))):
            if option not in self.options:
                say(file, f"no command or script has the option {option}")
        for link in re.findall(r"\]\(([^)\s]+)\)", prose):
            path, _, heading = link.partition("#")
            if "://" in path:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(file), path)) if path else file
            if not os.path.exists(os.path.join(self.root, target)):
                say(file, f"the link to {link} leads nowhere")
            elif heading:
                with open(os.path.join(self.root, target)) as f:
                    headings = re.findall(r"^#+ (.*)$", f.read(), re.M)
                if heading not in (re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings):
                    say(file, f"the link to {link}: {target} has no such heading")

    def check_recipe(self, file):
        """A workflow of docs/examples/ci: its YAML, its shell, and what its commands ask for."""
        try:
            import yaml
            from yamllint import config, linter
        except ImportError as error:
            if "LOCKSTEP_SKIP_NOTHING" in os.environ:
                say(file, f"not checked: {error}")
            return
        with open(os.path.join(self.root, file)) as f:
            text = f.read()
        rules = config.YamlLintConfig("{extends: default, rules: {line-length: {max: 140}}}")
        for problem in linter.run(text, rules):
            say(f"{file}:{problem.line}", problem.desc)
        try:
            jobs = yaml.safe_load(text)["jobs"]
            steps = [(name, step) for name, job in jobs.items() for step in job["steps"]]
        except (yaml.YAMLError, KeyError, TypeError, AttributeError) as error:
            say(file, f"is no workflow: {error}")
            return
        for name, step in steps:
            if ("run" in step) == ("uses" in step):
                say(file, f"a step of {name} neither runs nor uses something, or both")
            script = step.get("run", "")
            syntax = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
            if syntax.returncode != 0:
                say(file, f"'{script}': {syntax.stderr}")
            for line in re.sub(r"\S*/lockstep ", "lockstep ", script).split("\n"):
                self.look_at(file, line)

    def recipes(self):
        folder = os.path.join(self.root, "docs/examples/ci")
        return [f"docs/examples/ci/{name}" for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []

    def all_files(self):
        return ["README.md"] + sorted(f"docs/{name}" for name in os.listdir(os.path.join(self.root, "docs")) if name.endswith(".md"))

    def check_all(self, files):
        for file in files:
            self.check(file)
        if "docs/ci.md" in files:
            for file in self.recipes():
                self.check_recipe(file)
        for file, command, reason in self.not_run:
            if file in files and (file, command, reason) not in self.used:
                say("tests/docs/not_run.txt", f"{file} has no command '{command}'")


def main():
    words = sys.argv[1:]
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    if "--root" in words:
        at = words.index("--root")
        root = words[at + 1]
        del words[at:at + 2]
    docs = Docs(os.path.abspath(words[0]), os.path.abspath(root))
    files = words[1:] or docs.all_files()
    docs.check_all(files)
    for line in wrong:
        print(f"wrong: {line}")
    print(f"{len(files)} files, {docs.ran} commands run, {len(docs.used)} excused, {len(wrong)} wrong")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
