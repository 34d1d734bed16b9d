package terminal

import (
	"regexp"
	"strings"

	"github.com/rivo/uniseg"
)

// painted matches the escape sequences that Paint adds to texts.
var painted = regexp.MustCompile("\x1b\\[[0-9;]*m")

// Width returns how many columns of a terminal a text occupies. Colours occupy none.
func Width(text string) int {
	if strings.Contains(text, "\x1b") {
		text = painted.ReplaceAllString(text, "")
	}
	return uniseg.StringWidth(text)
}

// Wrap formats prose in lines that fit the screen, each with a newline. `first` begins the first line, and `hang` every
// other line. Wrap breaks lines at spaces and newlines. It does not break between a number and its unit, or at U+00A0,
// which becomes a space. If `hang` consists of blanks and a word does not fit after it, `hang` is shortened.
func (s Screen) Wrap(first, hang, text string) string {
	var b strings.Builder
	for i, line := range lines(text, s.Prose()-Width(first), s.Prose()-Width(hang)) {
		if i == 0 {
			line = first + line
		} else {
			line = s.nearer(hang, line) + line
		}
		b.WriteString(strings.TrimRight(strings.ReplaceAll(line, "\u00a0", " "), " ") + "\n")
	}
	return b.String()
}

// Fit breaks the lines of a text that are wider than Prose allows, between words. The parts of a broken line keep its
// indentation. `lead` begins every line. Lines that fit stay unchanged.
func (s Screen) Fit(lead, text string) string {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		body := strings.TrimLeft(line, " ")
		hang := lead + line[:len(line)-len(body)]
		if Width(lead)+Width(line) <= s.Prose() {
			b.WriteString(lead + line)
		} else {
			b.WriteString(strings.TrimSuffix(s.Wrap(hang, hang, body), "\n"))
		}
	}
	return b.String()
}

// nearer shortens a blank hang if the line would not fit otherwise.
func (s Screen) nearer(hang, line string) string {
	if over := Width(hang) + Width(line) - s.Columns; over > 0 && strings.Trim(hang, " ") == "" {
		return hang[min(over, len(hang)):]
	}
	return hang
}

// Facts formats names and their values, one pair per line; names without a value are left out.
func (s Screen) Facts(rows [][2]string) string {
	widest := 0
	for _, r := range rows {
		if r[1] != "" {
			widest = max(widest, Width(r[0]))
		}
	}
	var b strings.Builder
	for _, r := range rows {
		if r[1] != "" {
			b.WriteString(s.Wrap(pad(r[0], widest, false)+"  ", strings.Repeat(" ", widest+2), r[1]))
		}
	}
	return b.String()
}

// lines breaks a text at spaces and newlines. The first line has at most `first` columns and every other line at most
// `rest`, unless one word is longer.
func lines(text string, first, rest int) []string {
	var all []string
	for paragraph := range strings.SplitSeq(text, "\n") {
		line, wide := "", 0
		words := strings.FieldsFunc(paragraph, func(r rune) bool { return r == ' ' || r == '\t' })
		for i, word := range words {
			if i > 0 && isUnit(word) && endsInDigit(words[i-1]) {
				continue // the unit is already joined to its number
			}
			if i+1 < len(words) && isUnit(words[i+1]) && endsInDigit(word) {
				word += " " + words[i+1]
			}
			room := rest
			if len(all) == 0 {
				room = first
			}
			n := Width(word)
			if line != "" && wide+1+n > room {
				all, line, wide = append(all, line), "", 0
			}
			if line != "" {
				line, wide = line+" ", wide+1
			}
			line, wide = line+word, wide+n
		}
		all = append(all, line)
	}
	return all
}

// isUnit reports whether a word is a unit, which may not begin a line: "ms", "%,", "MiB)".
func isUnit(word string) bool {
	switch strings.TrimRight(word, ".,;:)") {
	case "ns", "µs", "ms", "s", "%", "B", "KiB", "MiB", "GiB", "TiB":
		return true
	}
	return false
}

func endsInDigit(word string) bool {
	last := word[len(word)-1]
	return last >= '0' && last <= '9'
}

// broken returns lines of at most `columns` columns. A wider word is cut after its last hyphen or slash that fits, or,
// if there is none, at any place.
func broken(text string, columns int) []string {
	var all []string
	for _, line := range lines(text, columns, columns) {
		for Width(line) > columns {
			head := Clip(line, columns, "")
			if head == "" { // a single character is wider than a line
				break
			}
			if at := strings.LastIndexAny(head, "-/"); at > 0 {
				head = head[:at+1]
			}
			all, line = append(all, head), strings.TrimPrefix(line[len(head):], " ")
		}
		all = append(all, line)
	}
	return all
}

// Clip cuts a text without colours to this many columns. A text that was cut ends with the mark.
func Clip(text string, columns int, mark string) string {
	if Width(text) <= columns {
		return text
	}
	room, n := columns-Width(mark), 0
	rest, state := text, -1
	for rest != "" {
		var wide int
		var cluster string
		cluster, rest, wide, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if wide > room {
			break
		}
		n, room = n+len(cluster), room-wide
	}
	if room = columns - Width(text[:n]); room < Width(mark) {
		return text[:n]
	}
	return text[:n] + mark
}

// pad fills a text with blanks up to this many columns, on its right or on its left.
func pad(text string, columns int, right bool) string {
	blank := strings.Repeat(" ", max(0, columns-Width(text)))
	if right {
		return blank + text
	}
	return text + blank
}
