package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// These are widths in columns.
const (
	Default  = 100 // if the output is no terminal
	Narrow   = 40  // the least width supported
	ProseMax = 110 // longer lines of prose are hard to read
)

// Screen describes an output: its width in columns, and whether it shows colours.
type Screen struct {
	Columns int
	Colour  bool
}

// ColumnsVar is an environment variable with the width of the terminal. A process that shows the output of other
// processes sets it for them.
const ColumnsVar = "MILLRACE_COLUMNS"

// Of returns the Screen of a writer: a terminal's size, and colours by the convention of no-color.org. Without a
// terminal, or with --log json, it has no colours and Default columns, or as many as ColumnsVar says.
func Of(w io.Writer) Screen {
	f, ok := w.(interface{ Fd() uintptr }) // a file, or a wrapper of one
	if !ok || !term.IsTerminal(int(f.Fd())) {
		s := Screen{Columns: Default}
		if n, err := strconv.Atoi(os.Getenv(ColumnsVar)); err == nil && n > 0 {
			s.Columns = max(Narrow, n)
		}
		return s
	}
	s := Screen{Columns: Default, Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
		s.Columns = max(Narrow, columns)
	}
	return s
}

// Prose returns the width of lines of prose, in columns.
func (s Screen) Prose() int { return min(s.Columns, ProseMax) }

// Style is a style of text: bold, faint, or one of the sixteen ANSI colours, which every theme makes readable.
type Style string

// These are the styles.
const (
	Bold    Style = "1"
	Faint   Style = "2"
	Red     Style = "31"
	Green   Style = "32"
	Yellow  Style = "33"
	Blue    Style = "34"
	Magenta Style = "35"
	Cyan    Style = "36"
)

// Paint returns a text in a style, or unchanged if the screen shows no colours.
func (s Screen) Paint(style Style, text string) string {
	if !s.Colour || text == "" || style == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}
