package cli

import (
	"encoding/json"
	"io"
	"os"

	"golang.org/x/term"
)

// writeJSON writes a value for machines.
func WriteJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// isTerminal says whether a file is a person's screen.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
