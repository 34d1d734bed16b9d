
# These functions replace what the script needs of the package bash-completion, if that is not installed. The first one
# joins the words that bash splits at = and : without a space; the second one completes paths with given endings.

__PROGRAM_words()
{
    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@"
        return
    fi
    local i rest=$COMP_LINE behind=${COMP_LINE:COMP_POINT}
    words=() cword=-1
    for ((i = 0; i <= COMP_CWORD; i++)); do
        if [[ $i -gt 0 && $rest != [[:space:]]* && (${COMP_WORDS[i]} == [=:]* || ${words[cword]} == *[=:]) ]]; then
            words[cword]+=${COMP_WORDS[i]}
        else
            words[++cword]=${COMP_WORDS[i]}
        fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"${COMP_WORDS[i]}"}
    done
    cur=${words[cword]}
    cur=${cur%"${behind%%[[:space:]]*}"}
    prev=${words[cword - 1]}
}

__PROGRAM_paths()
{
    if declare -F _filedir >/dev/null 2>&1; then
        _filedir "$@"
        return
    fi
    local entry
    while IFS= read -r entry; do
        if [[ -d ${entry/#\~\//$HOME/} || $1 != -d && (-z $1 || $entry == *.@($1)) ]]; then
            COMPREPLY+=("$entry")
        fi
    done < <(compgen -f -- "$cur")
    compopt -o filenames
}
