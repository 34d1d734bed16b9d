package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
)

// odd lists values that may occur by mistake in place of a right one.
var odd = strings.Fields(`
	0 -1 1 2 3 7 -0 1e308 -1e308 1e-320 1e999 NaN nan .nan Inf -Infinity .inf 1.5 00 0x10 1_000
	2147483647 2147483648 -2147483649 4294967296 9007199254740993 9223372036854775807 9223372036854775808
	99999999999999999999999 268435455 1048576 65536 null ~ true false [] {} [[]] [0] {"a":1} "" "a"
	*a &a !a | > - ? : # , ../../x /dev/zero`)

// unseen lists further odd values that are hard to write in the literal of odd: empty, blank, invisible or very long
// ones.
var unseen = []string{
	"", " ", "\t", "\x00", "\ufeff", "\u202e", "\x1b[31m", "\xff\xfe",
	strings.Repeat("9", 400), strings.Repeat("a", 5000),
}

var (
	tokens  = regexp.MustCompile(`\w+|-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?|"[^"\n]*"|[^\s\w"]`)
	numbers = regexp.MustCompile(`[0-9]+`)
	// values matches what follows a colon, a comma or an opening bracket: values of JSON, and most of YAML's.
	values = regexp.MustCompile(`(?:[:,\[{]\s*)("[^"\n]*"|-?[0-9][0-9.eE+-]*|true|false|null|[A-Za-z][A-Za-z0-9_/.]*)`)
)

// seeded returns the random source of the attack with this number.
func seeded(seed, number uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, number)) }

// mutate changes a text in one to three random places, and describes the changes.
func mutate(text []byte, r *rand.Rand) (changed []byte, how string) {
	changed = bytes.Clone(text)
	var said []string
	for range 1 + r.IntN(3)*r.IntN(2) {
		var one string
		changed, one = mutateOnce(changed, r)
		said = append(said, one)
	}
	return changed, strings.Join(said, ", ")
}

func oddest(r *rand.Rand) string {
	n := r.IntN(len(odd) + len(unseen))
	if n < len(odd) {
		return odd[n]
	}
	return unseen[n-len(odd)]
}

func mutateOnce(b []byte, r *rand.Rand) ([]byte, string) {
	if len(b) == 0 {
		return []byte(oddest(r)), "something from nothing"
	}
	switch at := r.IntN(len(b)); r.IntN(16) {
	case 0:
		b[at] ^= 1 << r.IntN(8)
		return b, fmt.Sprintf("a bit of byte %d", at)
	case 1:
		b[at] = byte(r.IntN(256))
		return b, fmt.Sprintf("byte %d", at)
	case 2:
		n := min(len(b)-at, 1+r.IntN(20))
		return append(b[:at:at], b[at+n:]...), fmt.Sprintf("%d bytes at %d gone", n, at)
	case 3:
		return b[:at], fmt.Sprintf("cut at %d", at)
	case 4, 5:
		return replaceOne(b, tokens.FindAllIndex(b, -1), "token", r)
	case 6, 7, 8:
		return replaceOne(b, valuesOf(b), "value", r)
	case 9:
		return swapTwo(b, tokens.FindAllIndex(b, -1), r)
	case 10, 11, 12, 13:
		return nudge(b, r)
	default:
		return mutateLines(b, r)
	}
}

// valuesOf returns where values begin and end.
func valuesOf(b []byte) [][]int {
	var all [][]int
	for _, m := range values.FindAllSubmatchIndex(b, -1) {
		all = append(all, m[2:4])
	}
	return all
}

// replaceOne replaces one of these parts of a text by an odd value or by another part. Without parts it appends an odd
// value.
func replaceOne(b []byte, parts [][]int, what string, r *rand.Rand) ([]byte, string) {
	if len(parts) == 0 {
		return append(b, oddest(r)...), "something behind the end"
	}
	p := parts[r.IntN(len(parts))]
	with := oddest(r)
	if r.IntN(3) == 0 {
		other := parts[r.IntN(len(parts))]
		with = string(b[other[0]:other[1]])
	}
	return splice(b, p, with), fmt.Sprintf("the %s at %d is %s", what, p[0], clipped(with, 30))
}

// nudge replaces a number by one that is computed from the old number, so that the text remains readable.
func nudge(b []byte, r *rand.Rand) ([]byte, string) {
	all := numbers.FindAllIndex(b, -1)
	if len(all) == 0 {
		return b, "nothing"
	}
	part := all[r.IntN(len(all))]
	n, err := strconv.ParseInt(string(b[part[0]:part[1]]), 10, 64)
	if err != nil {
		return b, "nothing"
	}
	to := []int64{n + 1, n - 1, 2 * n, n / 2, -n, 10 * n, 1000 * n, n + 1<<20}[r.IntN(8)]
	return splice(b, part, strconv.FormatInt(to, 10)), fmt.Sprintf("the number at %d is %d", part[0], to)
}

func swapTwo(b []byte, parts [][]int, r *rand.Rand) ([]byte, string) {
	if len(parts) < 2 {
		return b, "nothing"
	}
	i := r.IntN(len(parts) - 1)
	j := i + 1 + r.IntN(min(8, len(parts)-i-1))
	first, second := string(b[parts[i][0]:parts[i][1]]), string(b[parts[j][0]:parts[j][1]])
	return splice(splice(b, parts[j], first), parts[i], second), fmt.Sprintf("the tokens at %d and %d changed places",
		parts[i][0], parts[j][0])
}

func splice(b []byte, part []int, with string) []byte {
	return bytes.Join([][]byte{b[:part[0]], []byte(with), b[part[1]:]}, nil)
}

// mutateLines drops a line, repeats a line, or exchanges two lines.
func mutateLines(b []byte, r *rand.Rand) ([]byte, string) {
	lines := bytes.SplitAfter(b, []byte("\n"))
	i, j := r.IntN(len(lines)), r.IntN(len(lines))
	switch r.IntN(3) {
	case 0:
		return bytes.Join(append(lines[:i:i], lines[i+1:]...), nil), fmt.Sprintf("line %d gone", i+1)
	case 1:
		return bytes.Join(append(lines[:i+1:i+1], lines[i:]...), nil), fmt.Sprintf("line %d twice", i+1)
	}
	lines[i], lines[j] = lines[j], lines[i]
	return bytes.Join(lines, nil), fmt.Sprintf("lines %d and %d changed places", i+1, j+1)
}
