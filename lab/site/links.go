package site

import (
	"bytes"
	"fmt"
	"html/template"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/yuin/goldmark/ast"
)

// place is the target of a link.
type place struct {
	address  string // of the HTML page, relative to the linking page; "" if the target is not a page
	page     string // the page's file; "" if the target is not a page
	fragment string
	file     string // path in the repository
}

// resolve finds the target of a relative link. ok is false, without an error, for a link to the network.
func (b *builder) resolve(from Page, link string) (to place, ok bool, err error) {
	u, err := url.Parse(link)
	if err != nil {
		return to, false, fmt.Errorf("the link %q cannot be read", link)
	}
	if u.Scheme != "" || u.Host != "" {
		return to, false, nil
	}
	to.file, to.fragment = from.File, u.Fragment
	if u.Path != "" {
		to.file = path.Join(path.Dir(from.File), u.Path)
	}
	if strings.HasPrefix(to.file, "..") || path.IsAbs(to.file) {
		return to, false, fmt.Errorf("the link %q leads out of the repository", link)
	}
	for _, p := range pages(b.contents) {
		if p.File == to.file {
			to.page, to.address = p.File, relative(from.address(), p.address())
			if to.fragment != "" {
				to.address += "#" + to.fragment
			}
			return to, true, nil
		}
	}
	if _, err := os.Stat(filepath.Join(b.from, filepath.FromSlash(to.file))); err != nil {
		return to, false, fmt.Errorf("the link %q leads to %s, which is not there", link, to.file)
	}
	return to, true, nil
}

// relative returns the path of one file of the site relative to another one.
func relative(from, to string) string {
	out, err := filepath.Rel(filepath.Dir(filepath.FromSlash(from)), filepath.FromSlash(to))
	if err != nil {
		return to
	}
	return filepath.ToSlash(out)
}

// rewrite replaces a page's links by the site's links, and records headings, pictures and faults.
func (b *builder) rewrite(doc *document) {
	var missing []*ast.Link
	_ = ast.Walk(doc.root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			if id, ok := n.AttributeString("id"); ok {
				doc.headings[string(id.([]byte))] = true
			}
		case *ast.Image:
			to, ok, err := b.resolve(doc.page, string(n.Destination))
			switch {
			case err != nil:
				b.wrong(doc, n, err)
			case ok:
				b.pictures[to.file] = true
				n.Destination = []byte(relative(doc.page.address(), to.file))
			}
		case *ast.Link:
			to, ok, err := b.resolve(doc.page, string(n.Destination))
			switch {
			case err != nil:
				b.wrong(doc, n, err)
			case ok && to.page == "":
				missing = append(missing, n)
			case ok:
				n.Destination = []byte(to.address)
				if to.fragment != "" {
					b.wanted = append(b.wanted, wanted{doc, n, to})
				}
			}
		}
		return ast.WalkContinue, nil
	})
	for _, link := range missing {
		said := ast.NewString([]byte(`<span class="elsewhere" title="in the repository: ` + template.HTMLEscapeString(string(link.Destination)) +
			`">`))
		end := ast.NewString([]byte("</span>"))
		said.SetCode(true)
		end.SetCode(true)
		parent := link.Parent()
		parent.InsertBefore(parent, link, said)
		for child := link.FirstChild(); child != nil; child = link.FirstChild() {
			parent.InsertBefore(parent, link, child)
		}
		parent.InsertBefore(parent, link, end)
		parent.RemoveChild(parent, link)
	}
}

// wanted is a heading that a link names.
type wanted struct {
	doc  *document
	link ast.Node
	to   place
}

// wrong records a fault of a page, at the line of a node.
func (b *builder) wrong(doc *document, n ast.Node, err error) {
	b.faults = append(b.faults, fmt.Sprintf("%s:%d: %s", doc.page.File, doc.line(n), err))
}

// line returns the first line of the block that contains a node.
func (d *document) line(n ast.Node) int {
	for ; n != nil; n = n.Parent() {
		if n.Type() != ast.TypeInline && n.Lines() != nil && n.Lines().Len() > 0 {
			return 1 + bytes.Count(d.source[:n.Lines().At(0).Start], []byte("\n"))
		}
	}
	return 1
}
