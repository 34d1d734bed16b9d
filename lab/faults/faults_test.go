package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Wrong arguments are refused before anything is started.
func TestWrongCalls(t *testing.T) {
	for args, says := range map[string]string{
		"-only burnt":            `there is no way "burnt"; there are killed, stopped, cut, half-open, leader, leader-`,
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

// The table counts tries by their results. A campaign with any failure is not written as a file of results.
func TestTriesAreCounted(t *testing.T) {
	sum := summary{Way: "killed"}
	for _, one := range []try{
		{number: 0, took: 300 * time.Millisecond, named: true, right: true, clean: true},
		{number: 1, took: 11 * time.Second, named: true, clean: true, fewer: true, launched: true,
			wrong: []string{"took 11s to end"}},
	} {
		sum.add(&one)
	}
	r := results{Ways: []summary{sum, {Way: "cut"}}}
	var out bytes.Buffer
	r.print(&out)
	const want = "killed 2 11.0 s 2 1 2 1 1 1"
	if got := strings.Join(strings.Fields(strings.Split(out.String(), "\n")[2]), " "); got != want || r.wrong() != 1 ||
		sum.Found[0] != "try 1: took 11s to end" {
		t.Errorf("%q; want %q; %d wrong, %q", got, want, r.wrong(), sum.Found)
	}
	path := filepath.Join(t.TempDir(), "faults.json")
	err := r.write(path)
	if _, none := os.Stat(path); err == nil || none == nil {
		t.Errorf("%v, and what went wrong is written (%v)", err, none)
	}
	r.Ways = r.Ways[1:]
	if err := r.write(path); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// An error.json without the rank of the lost process does not name that process. This is so even if rank 0 is lost: a
// missing rank does not count as 0.
func TestAnErrorNamesTheLostOne(t *testing.T) {
	const by, of = `{"exit_code": 3, "retry": true, "rank": `, `, "lost": {"rank": `
	for text, right := range map[string]struct{ lost, cut bool }{
		by + `1` + of + `0, "name": "rank 0 on host host0"}}`: {true, true},
		by + `0` + of + `2, "name": "rank 2 on host host2"}}`: {false, true},
		by + `0` + of + `0, "name": "rank 0 on host host0"}}`: {},
		by + `1` + of + `2, "name": "rank 2 on host host2"}}`: {},
		by + `1` + of + `0, "name": "rank 2 on host host2"}}`: {},
		by + `1, "lost": {"name": "rank 0 on host host0"}}`:   {},
		by + `1, "lost": {}}`: {},
		by + `1}`:             {},
		`{"exit_code": 3, "retry": true` + of + `0, "name": "rank 0 on host host0"}}`:              {},
		`{"exit_code": 1, "retry": true, "rank": 1` + of + `0, "name": "rank 0 on host host0"}}`:   {},
		`{"exit_code": 3, "retry": false, "rank": 1` + of + `0, "name": "rank 0 on host host0"}}`:  {},
		`{"exit_code": 3, "retry": true, "rank": 1` + of + `"0", "name": "rank 0 on host host0"}}`: {},
	} {
		victim := try{victim: 0}
		if lost, cut := victim.nameIn([]byte(text), false), victim.nameIn([]byte(text), true); (lost == nil) != right.lost ||
			(cut == nil) != right.cut {
			t.Errorf("%s: %v where it is lost, %v where its link is", text, lost, cut)
		}
	}
}
