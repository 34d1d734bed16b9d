package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"
)

// WriteJSON writes a value as indented JSON.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// Draws reports whether live lines may be drawn on a file: it is a terminal, and the log is not for machines.
func Draws(f *os.File) bool { return !Records() && IsTerminal(f) }

// IsTerminal reports whether a file is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
