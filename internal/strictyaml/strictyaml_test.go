package strictyaml

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// kinds has a field of every kind that occurs in millrace's files.
type kinds struct {
	Word   string         `yaml:"word"`
	Count  int            `yaml:"count"`
	Seed   uint64         `yaml:"seed"`
	Rate   float64        `yaml:"rate"`
	On     bool           `yaml:"on"`
	List   []string       `yaml:"list"`
	Any    map[string]any `yaml:"any"`
	Nested struct {
		Deep int `yaml:"deep"`
	} `yaml:"nested"`
	Many  []map[string]any `yaml:"many"`
	Whole []int            `yaml:"whole"`
	By    map[string]int   `yaml:"by"`
	Alike []*struct {
		Deep *int `yaml:"deep"`
	} `yaml:"alike"`
}

func TestWhatIsRead(t *testing.T) {
	var k kinds
	text := "word: a\ncount: 3\nrate: 1e-3\non: true\nlist: [a, 2]\nany: &x {b: [1, 2]}\nnested: {deep: 4}\n" +
		"many: [*x, {c: *x}]\n# the end\n"
	if err := Decode([]byte(text), &k); err != nil {
		t.Fatal(err)
	}
	if k.Word != "a" || k.Count != 3 || k.Rate != 1e-3 || !k.On || len(k.List) != 2 || k.List[1] != "2" ||
		k.Nested.Deep != 4 || len(k.Many) != 2 {
		t.Errorf("%+v", k)
	}
}

// TestTabsThatAreRead: a tab is read in single quotes, in a block and in a comment, and as an escape in double quotes.
// White space between a key and its text may be a tab.
func TestTabsThatAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"word: 'a\t\"b\tc'\ncount: 3\n":            "a\t\"b\tc",
		"word: b\"c\" # \"c\td\"\ncount: 3\n":      "b\"c\"",
		"word: |\n  \"a\tb\"\ncount: 3\n":          "\"a\tb\"\n",
		"word: \"a\\tb\"\t# \"\t\"\ncount: 3\n":    "a\tb",
		"word:\t\"a\"\ncount:\t3\n":                "a",
		"# \"\t\"\nword: \"a\\\"b\"\t\ncount: 3\n": "a\"b",
	} {
		var k kinds
		if err := Decode([]byte(text), &k); err != nil || k.Word != want || k.Count != 3 {
			t.Errorf("%q: %q and %d (%v)", text, k.Word, k.Count, err)
		}
	}
}

// TestWholeNumbersWithPoints: whether a number is whole depends on its value, not on its spelling.
func TestWholeNumbersWithPoints(t *testing.T) {
	var k kinds
	text := "count: 3.0\nseed: 1e3\nrate: 2.5\nnested: {deep: 2.0}\nlist: [1.5]\nany: {a: 1.5}\n"
	if err := Decode([]byte(text), &k); err != nil {
		t.Fatal(err)
	}
	if k.Count != 3 || k.Seed != 1000 || k.Rate != 2.5 || k.Nested.Deep != 2 {
		t.Errorf("%+v", k)
	}
}

func TestNothingSaidIsEOF(t *testing.T) {
	for _, text := range []string{"", "\n\n", "# only a comment\n", "---\n", "---\n...\n"} {
		k := kinds{Count: 7}
		if err := Decode([]byte(text), &k); !errors.Is(err, io.EOF) || k.Count != 7 {
			t.Errorf("%q: %v, %+v", text, err, k)
		}
	}
}

// An unknown field that is like no other is refused with the fields that its document may have. One deeper in the
// document is not, as the fields there are others.
func TestAnUnknownFieldListsTheKnownOnes(t *testing.T) {
	var into struct {
		Size  int `yaml:"size"`
		Layer struct {
			Width int `yaml:"width"`
		} `yaml:"layer"`
	}
	for text, want := range map[string]string{
		"optimizer: adam\n":          `[1:1] unknown field "optimizer"; this document has layer, size` + "\n",
		"layer: {optimizer: adam}\n": `[1:9] unknown field "optimizer"` + "\n",
	} {
		if err := Decode([]byte(text), &into); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	bomb := "any:\n  a: &a [1,1,1,1,1,1,1,1,1,1]\n"
	for at := 'b'; at < 'k'; at++ {
		prev := "*" + string(at-1)
		bomb += "  " + string(at) + ": &" + string(at) + " [" + strings.Repeat(prev+",", 9) + prev + "]\n"
	}
	for text, want := range map[string]string{
		"word: a\ncoutn: 3\n": "[2:1] unknown field \"coutn\"; did you mean count?\n" +
			"   1 | word: a\n>  2 | coutn: 3\n       ^",
		"deep: 3\n":                      "[1:1] field \"deep\" belongs in nested or alike",
		"nested: {count: 3}\n":           "[1:10] field \"count\" belongs in the top level",
		"count: 1\ncount: 2\n":           "[2:1] mapping key \"count\" already defined at [1:1]",
		"any: !x {a: 3}\n":               `[1:6] tags like "!x" are not read`,
		"any: !x\n":                      `[1:6] tags like "!x" are not read`,
		"any: {a: !!binary b}\n":         `tags like "!!binary" are not read`,
		"!x\n":                           `tags like "!x" are not read`,
		"list: !!set {a}\n":              `tags like "!!set" are not read`,
		"count: [1]\n":                   "[1:8] it must be a whole number",
		"count: many\n":                  "[1:8] it must be a whole number",
		"count: 2.7\n":                   "[1:8] count is 2.7; it must be a whole number",
		"count: \"2.7\"\n":               "[1:8] count is 2.7; it must be a whole number",
		"count: 25e-1\n":                 "[1:8] count is 25e-1; it must be a whole number",
		"seed: 0.5\n":                    "[1:7] seed is 0.5; it must be a whole number from 0 on",
		"nested: {deep: 1.5}\n":          "[1:16] deep is 1.5; it must be a whole number",
		"rate: &x 1.5\ncount: *x\n":      "count is 1.5; it must be a whole number",
		"any: {b: &x 0.5}\nseed: *x\n":   "seed is 0.5; it must be a whole number from 0 on",
		"whole: [1, 2.5]\n":              "[1:12] whole is 2.5; it must be a whole number",
		"by: {a: 1, b: 2.5}\n":           "[1:15] b is 2.5; it must be a whole number",
		"alike: [{deep: 1}, {deep: .5}]": "deep is .5; it must be a whole number",
		"rate: [1]\n":                    "[1:7] it must be a number",
		"on: 3\n":                        "[1:5] it must be true or false",
		"seed: -1\n":                     "-1 is out of range; it must be a whole number from 0 on",
		"count: 99999999999999999999\n":  "99999999999999999999 is out of range; it must be a whole number",
		"list: a\n":                      "[1:7] string was used where sequence is expected",
		"any: [1]\n":                     "[1:6] sequence was used where mapping is expected",
		"nested: {deep: {a: 1}}\n":       "it must be a whole number",
		"- word: a\n":                    "[1:1] sequence was used where mapping is expected",
		"hello\n":                        "[1:1] string was used where mapping is expected",
		"nested:\n\tdeep: 1\n":           "line 2: a tab; YAML indents with spaces\n   1 | nested:\n>  2 | \tdeep: 1\n",
		"list:\n  - a\n\t- b\n":          "line 3: a tab; YAML indents with spaces\n",
		"word: |\n\thello\n":             "line 2: a tab; YAML indents with spaces\n",
		"many:\n  -\ta: 1\n":             "line 2: a tab; YAML indents with spaces\n",
		"word: \"a\tb\"\ncount: 3\n": "[1:7] a tab in double-quoted text; write \\t\n>  1 | word: \"a b\"\n" +
			"             ^\n   2 | count: 3",
		"list: [b, \"a\tb\"]\n":           "[1:11] a tab in double-quoted text; write \\t\n>  1 | list: [b, \"a b\"]\n",
		"rate: 1\nword:\t\"a\n  b\tc\"\n": "[2:7] a tab in double-quoted text; write \\t\n",
		// The five tabs made the library skip the whole second line.
		"word: \"\t\t\t\t\t.\"\non: 3\nrate: 2\n": "[1:7] a tab in double-quoted text",
		"word: a\n---\nword: b\n":                 "[3:5] a second document begins here",
		"list: [a\n":                              "[1:7] sequence end token ']' not found",
		"any: &a {b: *a}\n":                       "alias *a stands for nothing that is complete before it",
		"any: {b: *c}\n":                          "alias *c stands for nothing that is complete before it",
		"any: " + strings.Repeat("[", 100) + strings.Repeat("]", 100): "it is nested deeper than 64 levels",
		"any: " + strings.Repeat("[", 100_000):                        "line 1: it is nested deeper than 64 levels",
		strings.Repeat("- ", 100_000):                                 "line 1: it is nested deeper than 64 levels",
		"list: [" + strings.Repeat("a,", 400_000) + "a]": "the text has more than 65536 marks of YAML, " +
			"and no more are read",
		"any:\n" + strings.Repeat(" a: 1\n", 20_000): "a mapping has more than 4096 lines, and no more are read",
		"any:\r" + strings.Repeat(" a: 1\r", 20_000): "a mapping has more than 4096 lines, and no more are read",
		bomb:                                     "with its aliases it stands for more than 262144 values",
		"word: " + strings.Repeat("a", MaxBytes): "the text has 1048582 bytes; at most 1048576 are read",
	} {
		var k kinds
		err := Decode([]byte(text), &k)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: got %v, want it to say %q", text, err, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("word: a\ncount: 3\nmany: [{a: &b {c: d}}, *b]\n")
	f.Add("any: !x {a: 3}\n")
	f.Add("<<: &a\n  count: 3\nany: *a\n")
	f.Fuzz(func(t *testing.T, text string) {
		var k kinds
		_ = Decode([]byte(text), &k) // Decode must return, with or without an error
	})
}

func TestInFileNamesTheFileOnTheFirstLine(t *testing.T) {
	cause := io.ErrUnexpectedEOF
	for text, want := range map[string]string{"a": "a (in f.yaml)", "a\n> 1 | b\n     ^\n": "a (in f.yaml)\n> 1 | b\n   " +
		"  ^"} {
		err := InFile(fmt.Errorf("%s%w", text, quiet{cause}), "f.yaml")
		if got := err.Error(); got != want || !errors.Is(err, cause) {
			t.Errorf("%q became %q", text, got)
		}
	}
	if InFile(nil, "f.yaml") != nil {
		t.Error("no error became one")
	}
}

// quiet is an error without a text of its own.
type quiet struct{ error }

func (quiet) Error() string   { return "" }
func (q quiet) Unwrap() error { return q.error }

// TestLongFilesAreRead: the bounds stop malicious texts, and are far above millrace's own files.
func TestLongFilesAreRead(t *testing.T) {
	text := "many:\n"
	for i := range 4000 {
		text += fmt.Sprintf("  - name: layer%d\n    out: %d\n    # as wide as [the last]\n", i, i)
	}
	var k kinds
	if err := Decode([]byte(text), &k); err != nil || len(k.Many) != 4000 {
		t.Errorf("%d entries (%v)", len(k.Many), err)
	}
}
