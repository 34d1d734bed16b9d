// Package terminal lays out what a person reads on a terminal: width, colours, prose, tables, counts,
// durations.
//
// In: a writer, and texts. Out: lines that fit the writer's Screen. A Screen is as many columns wide as the
// terminal is, 40 at least, and Default where there is none. Drawings and tables may have all of them, prose
// has ProseMax at most.
//
// Its driver asks for the Screen of what it writes to, once a verb: terminal.Of(c.OutOrStdout()) for a cobra
// command, terminal.Of(os.Stderr) for progress. Prose goes through Screen.Wrap, names and what they stand for
// through Screen.Facts, rows through Table, colours through Screen.Paint, which leaves texts as they are where
// the Screen has none. Counts of things are Count, lengths of time Duration, amounts of memory Bytes, other
// numbers Number. Nothing here is for machines: what --json writes is not laid out.
//
// Refused: nothing. A word that is wider than the screen stands whole on a line of its own in prose, so that
// a path can be copied, and is broken in a table.
//
// Tables are laid out here since no library does it: go-pretty's cuts what is too wide and lipgloss's
// abbreviates it, numbers and headings too; neither leaves out columns, and lipgloss has no groups.
package terminal
