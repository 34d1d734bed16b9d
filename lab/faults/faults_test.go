package main

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"
)

// What is asked for wrongly is refused before anything is started.
func TestWrongCalls(t *testing.T) {
	for args, says := range map[string]string{
		"-only burnt":            `there is no way "burnt"; there are killed, stopped, cut, half-open, leader`,
		"-tries 0":               "at least 1 try",
		"-tries 2 -try 2":        "at least 1 try",
		"killed":                 "takes no arguments but flags",
		"-millrace /none/at/all": "build it first",
	} {
		var errs bytes.Buffer
		if code := execute(strings.Fields(args), io.Discard, &errs); code != 2 || !strings.Contains(errs.String(), says) {
			t.Errorf("%s: code %d, %q; want something about %q", args, code, &errs, says)
		}
	}
}

// The table counts tries by what came of them, and a campaign in which anything went wrong has gone wrong.
func TestTriesAreCounted(t *testing.T) {
	sum := summary{Way: "killed"}
	for _, one := range []try{
		{number: 0, took: 300 * time.Millisecond, named: true, right: true, clean: true},
		{number: 1, took: 11 * time.Second, named: true, clean: true, fewer: true, wrong: []string{"took 11s to end"}},
	} {
		sum.add(&one)
	}
	r := results{Ways: []summary{sum, {Way: "cut"}}}
	var out bytes.Buffer
	r.print(&out)
	const want = "killed 2 11.00 s 2 1 2 1 1"
	if got := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[1]), " "); got != want || r.wrong() != 1 ||
		sum.Found[0] != "try 1: took 11s to end" {
		t.Errorf("%q; want %q; %d wrong, %q", got, want, r.wrong(), sum.Found)
	}
}
