package trace

import (
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/internal/kind"
)

// Fields are the parts of an instruction's text, "[p<pipeline>/]<stage><kind><micro>[@r<replica>]".
type Fields struct {
	Pipeline, Stage, Micro, Replica int
	Kind                            string
}

// ParseFields splits an instruction's text into its parts. It returns false if the text has another form. It does
// not check whether the kind exists.
func ParseFields(text string) (Fields, bool) {
	var f Fields
	ok := true
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil || n < 0 || s[0] == '+' {
			ok = false
		}
		return n
	}
	if rest, found := strings.CutPrefix(text, "p"); found {
		pipeline, after, found := strings.Cut(rest, "/")
		if !found {
			return Fields{}, false
		}
		f.Pipeline, text = number(pipeline), after
	}
	if before, replica, found := strings.Cut(text, "@r"); found {
		f.Replica, text = number(replica), before
	}
	isLetter := func(r rune) bool { return r >= 'A' && r <= 'Z' }
	first := strings.IndexFunc(text, isLetter)
	last := strings.LastIndexFunc(text, isLetter)
	if first <= 0 || last == len(text)-1 {
		return Fields{}, false
	}
	f.Stage, f.Kind, f.Micro = number(text[:first]), text[first:last+1], number(text[last+1:])
	for _, r := range f.Kind {
		ok = ok && isLetter(r)
	}
	if !ok {
		return Fields{}, false
	}
	return f, true
}

// IsBusy reports whether an event of this kind is work of the worker itself. Only such work counts as busy in a
// bubble; transfers, waits, drains and checkpoints do not.
func IsBusy(letters string) bool { return kind.Of(letters).Computes }

// Plain returns the kind in words, for readers who do not know the abbreviations.
func Plain(letters string) string { return kind.Of(letters).Plain }
