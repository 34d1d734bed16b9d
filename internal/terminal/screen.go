package terminal

import (
	"io"
	"os"
	"strconv"

	"golang.org/x/term"
)

// The widths, in columns.
const (
	Default  = 100 // where there is no terminal
	Narrow   = 40  // the least that is laid out for
	ProseMax = 110 // beyond which lines of prose are hard to read
)

// Screen is what is written on: its width in columns, and whether it shows colours.
type Screen struct {
	Columns int
	Colour  bool
}

// ColumnsVar is the environment's variable in which a process that shows what others print on its terminal says them
// how wide that is.
const ColumnsVar = "MILLRACE_COLUMNS"

// Of is the Screen of a writer: a terminal's size, and colours by the convention of no-color.org; Default
// without colours where the writer is no terminal, or with --log json.
func Of(w io.Writer) Screen {
	f, ok := w.(interface{ Fd() uintptr }) // a file, or what stands before one
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

// Prose is how wide lines of prose are, in columns.
func (s Screen) Prose() int { return min(s.Columns, ProseMax) }

// Style is how a text is painted: an ANSI code of the sixteen that every theme makes readable.
type Style string

// The styles.
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

// Paint writes a text in a style where the screen shows colours.
func (s Screen) Paint(style Style, text string) string {
	if !s.Colour || text == "" || style == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}
