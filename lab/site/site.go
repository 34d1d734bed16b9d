package site

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/text"

	files "github.com/millrace-ml/millrace/internal/document"
)

//go:embed page.html
var pageText string

//go:embed style.css
var style string

var pageTemplate = template.Must(template.New("page").Parse(pageText))

// mostBytes is the maximal size of a page or picture.
const mostBytes = 16 << 20

type builder struct {
	from     string
	contents []Group
	markdown goldmark.Markdown
	pictures map[string]bool // paths in the repository
	wanted   []wanted
	faults   []string
}

// document is a parsed page.
type document struct {
	page     Page
	source   []byte
	root     ast.Node
	headings map[string]bool
}

// Build writes the site of the repository in the folder `from` to the folder `to`, and returns the paths of the pages
// there.
func Build(from, to string) ([]string, error) { return build(from, to, Contents) }

func build(from, to string, contents []Group) ([]string, error) {
	b := &builder{from: from, contents: contents, pictures: map[string]bool{}}
	b.markdown = goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	docs, err := b.read()
	if err != nil {
		return nil, err
	}
	if err := b.check(docs); err != nil {
		return nil, err
	}
	if err := own(to); err != nil {
		return nil, err
	}
	var written []string
	for _, d := range docs {
		file := filepath.Join(to, filepath.FromSlash(d.page.address()))
		if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
			return nil, err
		}
		if err := files.Write(file, func(w io.Writer) error { return b.write(w, d) }); err != nil {
			return nil, err
		}
		written = append(written, file)
	}
	for _, name := range slices.Sorted(maps.Keys(b.pictures)) {
		if err := b.copyPicture(name, to); err != nil {
			return nil, err
		}
	}
	return written, removeOld(to, written)
}

// generator is a tag in every page of a site, by which Build recognises the pages that it wrote.
const generator = `<meta name="generator" content="millrace-lab docs">`

// own refuses a folder that has files but is no site. A site has an index that Build wrote.
func own(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := files.Read(filepath.Join(dir, "index.html"), mostBytes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if !bytes.Contains(text, []byte(generator)) {
		return fmt.Errorf("%s has files, as %s, and no index.html of an earlier site; give an empty or a new folder", dir,
			entries[0].Name())
	}
	return nil
}

// removeOld removes pages of an earlier site that are not in this one. Other files stay.
func removeOld(dir string, written []string) error {
	return filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".html" || slices.Contains(written, file) {
			return err
		}
		text, err := files.Read(file, mostBytes)
		if err != nil || !bytes.Contains(text, []byte(generator)) {
			return err
		}
		return os.Remove(file)
	})
}

// read parses every page of the contents.
func (b *builder) read() ([]*document, error) {
	left, err := unlisted(b.from, b.contents)
	b.faults = left
	if err != nil {
		return nil, err
	}
	var docs []*document
	for _, p := range pages(b.contents) {
		source, err := files.Read(filepath.Join(b.from, filepath.FromSlash(p.File)), mostBytes)
		if errors.Is(err, os.ErrNotExist) {
			b.faults = append(b.faults, fmt.Sprintf("%s: the contents of lab/site list it, and it is not there", p.File))
			continue
		}
		if err != nil {
			return nil, err
		}
		d := &document{page: p, source: source, headings: map[string]bool{}}
		d.root = b.markdown.Parser().Parse(text.NewReader(source))
		b.rewrite(d)
		docs = append(docs, d)
	}
	return docs, nil
}

// check returns an error with all faults of the site.
func (b *builder) check(docs []*document) error {
	headings := map[string]map[string]bool{}
	for _, d := range docs {
		headings[d.page.File] = d.headings
	}
	for _, w := range b.wanted {
		if on, read := headings[w.to.page]; read && !on[w.to.fragment] {
			b.wrong(w.doc, w.link, fmt.Errorf("%s has no heading #%s", w.to.page, w.to.fragment))
		}
	}
	if len(b.faults) > 0 {
		slices.Sort(b.faults)
		return errors.New(strings.Join(b.faults, "\n"))
	}
	return nil
}

// shown is the data of a page's template.
type shown struct {
	Title  string
	Home   string
	Style  template.CSS
	Groups []shownGroup
	Body   template.HTML
	Parts  []part
}

type shownGroup struct {
	Title string
	Links []shownLink
}

type shownLink struct {
	Title, Address string
	Here           bool
}

// part is a heading of the second level.
type part struct{ Title, ID string }

// write renders a page.
func (b *builder) write(w io.Writer, d *document) error {
	var body bytes.Buffer
	if err := b.markdown.Renderer().Render(&body, d.source, d.root); err != nil {
		return fmt.Errorf("%s: %w", d.page.File, err)
	}
	s := shown{Title: d.page.Title, Home: relative(d.page.address(), "index.html"), Style: template.CSS(style),
		Body: template.HTML(scrolling(body.String())), Parts: d.parts()}
	for _, g := range b.contents {
		group := shownGroup{Title: g.Title}
		for _, p := range g.Pages {
			group.Links = append(group.Links, shownLink{p.Title, relative(d.page.address(), p.address()), p == d.page})
		}
		s.Groups = append(s.Groups, group)
	}
	return pageTemplate.Execute(w, s)
}

// scrolling puts elements that may be wider than a phone into boxes that can be scrolled with a keyboard.
func scrolling(html string) string {
	return strings.NewReplacer(
		"<table>", `<div class="wide" tabindex="0" role="region" aria-label="table"><table>`, "</table>", "</table></div>",
		"<pre>", `<pre tabindex="0">`,
	).Replace(html)
}

// parts returns a page's headings of the second level, in order.
func (d *document) parts() (all []part) {
	for n := d.root.FirstChild(); n != nil; n = n.NextSibling() {
		h, ok := n.(*ast.Heading)
		if !ok || h.Level != 2 {
			continue
		}
		if id, ok := h.AttributeString("id"); ok {
			all = append(all, part{words(h, d.source), string(id.([]byte))})
		}
	}
	return all
}

// words returns the text of a node.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	_ = ast.Walk(n, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if t, ok := n.(*ast.Text); ok && entering {
			b.Write(t.Segment.Value(source))
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

// copyPicture copies a picture to its place on the site.
func (b *builder) copyPicture(name, to string) error {
	data, err := files.Read(filepath.Join(b.from, filepath.FromSlash(name)), mostBytes)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(to, filepath.FromSlash(path.Dir(name))), 0o777); err != nil {
		return err
	}
	return files.WriteText(filepath.Join(to, filepath.FromSlash(name)), string(data))
}
