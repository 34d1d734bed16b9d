package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"
)

// WriteJSON writes a value for machines.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Draws says whether something may be drawn on a file: a person's screen, and no log for machines.
func Draws(f *os.File) bool { return !Records() && IsTerminal(f) }

// IsTerminal says whether a file is a person's screen.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
