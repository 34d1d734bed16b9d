package site

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/internal/browser"
	"github.com/millrace-ml/millrace/internal/browsertest"
)

const root = "../.."

func built(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	written, err := Build(root, to)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(pages(Contents)); len(written) != want {
		t.Errorf("%d pages were written of %d", len(written), want)
	}
	return to
}

// Every page is opened on a wide screen in light colours, and on a phone in dark colours. Nothing is cut off. axe-core
// finds no fault in the light pages. It also checks each dark page with a kind of element that no earlier dark page
// has. Every link within the site leads to a file, and nothing is loaded from a network.
func TestTheSiteIsUsedAndLookedAt(t *testing.T) {
	to := built(t)
	var seen browsertest.Seen
	for _, p := range pages(Contents) {
		t.Run(p.Title, func(t *testing.T) {
			page := browsertest.Open(t, "file://"+filepath.Join(to, filepath.FromSlash(p.address())), browser.View{Width: 1280})
			page.Fits()
			page.Accessible()
			var links []string
			page.Eval(`[...document.querySelectorAll("a[href], img[src]")].map(e => e.href || e.src)`, &links)
			for _, link := range links {
				path, in := strings.CutPrefix(link, "file://")
				path, _, _ = strings.Cut(path, "#")
				if _, err := os.Stat(path); in && err != nil {
					t.Errorf("%s leads nowhere", link)
				}
			}
			page.Again(browser.View{Width: 400, Dark: true})
			page.Fits()
			seen.Accessible(page)
		})
	}
}

// TestASiteIsRefused checks that all faults of pages are reported together, with file and line.
func TestASiteIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md", "# A\n\nTo [b](docs/b.md#here), [gone](gone.md),\nto [b](docs/b.md#nowhere).\n\n![p](p.png)\n")
	write("docs/b.md", "# B\n\n## Here\n\n[out](../../etc)\n")
	write("docs/more.md", "# More\n")
	contents := []Group{{"All", []Page{{"A", "README.md"}, {"B", "docs/b.md"}, {"C", "docs/c.md"}}}}
	_, err := build(dir, filepath.Join(dir, "site"), contents)
	const want = `README.md:3: docs/b.md has no heading #nowhere
README.md:3: the link "gone.md" leads to gone.md, which is not there
README.md:6: the link "p.png" leads to p.png, which is not there
docs/b.md:5: the link "../../etc" leads out of the repository
docs/c.md: the contents of lab/site list it, and it is not there
docs/more.md: the contents of lab/site do not list it`
	if err == nil || err.Error() != want {
		t.Errorf("got:\n%v\nwant:\n%s", err, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "site")); err == nil {
		t.Error("a site that is refused is half written")
	}
}

// TestOldPagesGo checks that a page that is no longer listed is removed from the folder. Other programs' files stay.
func TestOldPagesGo(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"README.md", "b.md"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("# A\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	to := filepath.Join(dir, "site")
	both := []Group{{"All", []Page{{"A", "README.md"}, {"B", "b.md"}}}}
	before, err := build(dir, to, both)
	if err != nil || len(before) != 2 {
		t.Fatal(before, err)
	}
	other := filepath.Join(to, "other.html")
	if err := os.WriteFile(other, []byte("<p>not ours"), 0o666); err != nil {
		t.Fatal(err)
	}
	after, err := build(dir, to, []Group{{"All", []Page{{"A", "README.md"}}}})
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, file := range append(before, other) {
		if _, err := os.Stat(file); err == nil {
			left = append(left, file)
		}
	}
	if want := append(after, other); !slices.Equal(left, want) {
		t.Errorf("%v are left, want %v", left, want)
	}
}

// TestAFolderOfOtherFilesIsRefused: a site is not written among other files, even if one of them is an index.html. It
// is written into an empty folder.
func TestAFolderOfOtherFilesIsRefused(t *testing.T) {
	dir := t.TempDir()
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(dir, "README.md"), "# A\n")
	contents := []Group{{"All", []Page{{"A", "README.md"}}}}
	for name, text := range map[string]string{"notes.txt": "mine", "index.html": "<p>mine", ".git/config": "[core]"} {
		to := filepath.Join(dir, "to-"+filepath.Base(name))
		write(filepath.Join(to, filepath.FromSlash(name)), text)
		top, _, _ := strings.Cut(name, "/")
		want := to + " has files, as " + top + ", and no index.html of an earlier site; give an empty or a new folder"
		if _, err := build(dir, to, contents); err == nil || err.Error() != want {
			t.Errorf("%s: %v; want %s", name, err, want)
		}
		entries, err := os.ReadDir(to)
		kept, readErr := os.ReadFile(filepath.Join(to, filepath.FromSlash(name)))
		if err != nil || readErr != nil || len(entries) != 1 || string(kept) != text {
			t.Errorf("%s is left as %q among %v (%v, %v)", name, kept, entries, err, readErr)
		}
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := build(dir, empty, contents); err != nil {
		t.Error(err)
	}
}

// TestMessagesOfTroubleshootingAreMillraces checks that each message on the page occurs in the sources.
func TestMessagesOfTroubleshootingAreMillraces(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "troubleshooting.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rows, found := strings.Cut(string(page), "## By message")
	rows, _, _ = strings.Cut(rows, "\n## ")
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(rows, -1)
	if !found || len(messages) < 5 {
		t.Fatalf("the page has %d messages", len(messages))
	}
	said := literals(t)
	for _, m := range messages {
		if !strings.Contains(said, m[1]) {
			t.Errorf("millrace says %q nowhere", m[1])
		}
	}
}

// literals returns all strings of the sources, without tests and lab; concatenated strings are joined.
func literals(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() && (d.Name() == ".git" || d.Name() == "lab" || d.Name() == "build") {
			if d != nil && d.IsDir() && err == nil {
				return filepath.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		last := token.NoPos
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Errorf("%s: %v", path, err)
				}
				if lit.Pos() > last+8 {
					b.WriteString("\n")
				}
				b.WriteString(text)
				last = lit.End()
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}
