#!/bin/sh
# man_page.sh PROGRAM VERSION AWK: lockstep(1), with each command's --help in the place of @COMMANDS@.
set -eu
program=$1 version=$2 awk=$3
template=$(dirname "$0")/lockstep.1.in

commands() {
  for command in $("$program" --help | sed -n 's/^  lockstep \([a-z]*\) .*/\1/p'); do
    case $command in
    gen) for layer in dflash attn; do section "$command $layer"; done ;;
    *) section "$command" ;;
    esac
  done
}

section() { # section COMMAND [LAYER]: options become paragraphs with tags, all else stays as it is
  echo ".SS \"lockstep $1\""
  # shellcheck disable=SC2086,SC2016  # two words; awk's own $
  "$program" $1 --help | "$awk" '
    function plain(text) { gsub(/\\/, "\\e", text); gsub(/-/, "\\-", text); sub(/^[.\x27]/, "\\\\\\&&", text); return text }
    /^usage: / { print ".B"; print plain(substr($0, 8)); print ".PP"; next }
    /^  --/ {
      rest = substr($0, 3); gap = match(rest, /  +/)
      print ".TP"; print ".B \"" plain(gap ? substr(rest, 1, gap - 1) : rest) "\""
      if (gap) print plain(substr(rest, gap + RLENGTH))
      option = 1; next
    }
    /^ {8,}/ && option { sub(/^ +/, ""); print plain($0); next }
    /^$/ { print ".PP"; option = 0; next }
    { sub(/^ +/, ""); print plain($0) }'
}

echo ".TH LOCKSTEP 1 \"\" \"lockstep $version\" \"User Commands\""
sed '/@COMMANDS@/,$d' "$template"
commands
sed '1,/@COMMANDS@/d' "$template"
