# bash completion of lockstep(1): commands, the options that a command's --help lists, and the words that some take.
_lockstep() {
  local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]} words
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words="$("$program" --help 2>/dev/null | sed -n 's/^  lockstep \([a-z]*\) .*/\1/p') --version --help"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
    return
  fi
  if [[ $command == --version ]]; then
    mapfile -t COMPREPLY < <(compgen -W '--json' -- "$word")
    return
  fi
  case $before in
  --path | --against) mapfile -t COMPREPLY < <(compgen -W 'ref emu cuda auto' -- "$word"; compgen -f -- "$word") && return ;;
  --precision) mapfile -t COMPREPLY < <(compgen -W 'act f64' -- "$word") && return ;;
  esac
  if [[ $word == -* ]]; then
    words=$("$program" "$command" ${COMP_WORDS[2]:+$([[ $command == gen ]] && echo "${COMP_WORDS[2]}")} --help 2>/dev/null |
      sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$words --help" -- "$word")
  elif [[ ($command == gen || $command == fuzz) && $COMP_CWORD == 2 ]]; then
    mapfile -t COMPREPLY < <(compgen -W 'dflash attn' -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
  fi
}
complete -o filenames -F _lockstep lockstep
