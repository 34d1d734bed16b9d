// Package terminal formats text for people on a terminal: width, colours, prose, tables, counts, durations.
//
// Input: a writer, and texts. Output: lines that fit the writer's Screen. A Screen is as wide as the terminal, at least
// 40 columns. Without a terminal it has as many columns as ColumnsVar says, or Default. Drawings and tables may use the
// full width, prose at most ProseMax.
//
// The caller gets the Screen of its output once per verb: terminal.Of(c.OutOrStdout()) for a cobra command,
// terminal.Of(os.Stderr) for progress. Use Screen.Wrap for prose, Screen.Facts for names with their values, Table for
// rows, and Screen.Paint for colours, which it omits on a Screen without them. Use Count for counts of things, Duration
// for times, Bytes for memory, and Number for other numbers. Do not use this package for machine-readable output such
// as --json.
//
// Nothing is refused. In prose, a word that is wider than the screen has its own line and stays whole, so that a path
// can be copied. In a table it is broken.
//
// No library lays out tables as needed. go-pretty cuts off what is too wide. lipgloss abbreviates it, even numbers and
// headings, and has no groups. Neither leaves out columns.
package terminal
