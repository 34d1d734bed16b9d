package names

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheck(t *testing.T) {
	for name, want := range map[string]string{
		"":                                     "",
		"gpt-2 (größer) 模型":                    "",
		strings.Repeat("é", Longest):           "",
		strings.Repeat("é", Longest+1):         "a name of 201 characters",
		"a\x1b[31mb":                           "U+001B",
		"a\nb":                                 "U+000A",
		"a\u202eb":                             "U+202E",
		"a\u200bb":                             "U+200B",
		"a\u009b31mb":                          "U+009B",
		"a\x9bb":                               "must be text in UTF-8",
		"a\u2028b":                             "U+2028",
		"a" + string(rune(0xe0041)) + "hidden": "U+E0041",
	} {
		if err := Check(name); want == "" && err != nil ||
			want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: got %v, want it to say %q", name, err, want)
		}
	}
}

// TestFile: a file named by File is in the folder that it is put into, and is not hidden, whatever the name.
func TestFile(t *testing.T) {
	for name, want := range map[string]string{
		"gpt-2.5_b":              "gpt-2.5_b",
		"../../../escaped/evil":  "-..-..-escaped-evil",
		"a/b":                    "a-b",
		"..":                     "unnamed",
		"":                       "unnamed",
		"/":                      "-",
		"a\x00b\nc":              "a-b-c",
		"größer":                 "gr--er",
		strings.Repeat("a", 300): strings.Repeat("a", 64),
	} {
		if got := File(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add("../a")
	f.Fuzz(func(t *testing.T, name string) {
		got := File(name)
		if len(got) == 0 || len(got) > longestFile || got[0] == '.' || filepath.Base(got) != got {
			t.Errorf("%q became %q", name, got)
		}
	})
}

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"a line\n\tand another, größer\n": "a line\n\tand another, größer\n",
		"\x1b[2Jgone":                     `\u001b[2Jgone`,
		"\x1b]0;title\a":                  `\u001b]0;title\u0007`,
		"over\rwritten":                   `over\u000dwritten`,
		"abc\u202edef":                    `abc\u202edef`,
		"\u009b31m":                       `\u009b31m`,
		"\x9b31m":                         "\ufffd31m",
		"\x1b[31mred\x1b[0m":              `\u001b[31mred\u001b[0m`,
		"\x1b[38;5;1":                     `\u001b[38;5;1`,
		"cut \xc3":                        "cut \ufffd",
	} {
		if got := Shown(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestColours: a coloured Screen leaves colours as they are, but no other escape sequence.
func TestColours(t *testing.T) {
	for text, want := range map[string]string{
		"\x1b[31mred\x1b[0m": "\x1b[31mred\x1b[0m", "\x1b[38;5;1": `\u001b[38;5;1`, "\x1b[2Jgone": `\u001b[2Jgone`,
	} {
		if got := behind(t, true, text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// behind returns what a Screen writes for the parts of a text.
func behind(t *testing.T, coloured bool, parts ...string) string {
	t.Helper()
	var b strings.Builder
	s := Screen(&b, coloured)
	for _, part := range parts {
		if n, err := io.WriteString(s, part); n != len(part) || err != nil {
			t.Fatalf("%d of %d (%v)", n, len(part), err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// FuzzScreen: JSON keeps its meaning through a Screen, however the text is divided into writes.
func FuzzScreen(f *testing.F) {
	f.Add("a\u202e\x1b[31m\x1b[2J\u00e9"+string(rune(0xe0041)), 3)
	f.Fuzz(func(t *testing.T, text string, cut int) {
		cut = max(0, min(cut, len(text)))
		for _, coloured := range []bool{false, true} {
			parts, whole := behind(t, coloured, text[:cut], text[cut:]), behind(t, coloured, text)
			if parts != whole {
				t.Errorf("%q cut at %d is shown as %q, whole as %q", text, cut, parts, whole)
			}
		}
		if !utf8.ValidString(text) {
			return
		}
		quoted, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(Shown(string(quoted))), &back); err != nil || back != text {
			t.Errorf("%q became %q in JSON (%v)", text, back, err)
		}
	})
}
