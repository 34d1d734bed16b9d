package pt2

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/internal/ziparchive"
)

const (
	maxDirectory = 32 << 20 // bytes of the list of members; torch writes a member for each tensor
	maxText      = 64 << 20 // bytes of JSON; 20,000 operators take about 20 MB
)

// archive is a zip archive with the layout that torch.export.save writes.
type archive struct {
	members map[string]*zip.File // by name below the top folder
	name    string               // name of the model
	size    int64                // size of the file in bytes
}

func newArchive(r io.ReaderAt, size int64) (*archive, error) {
	members, err := ziparchive.Members(r, size, maxDirectory)
	if err != nil {
		return nil, fmt.Errorf("%w: give a file of torch.export.save", err)
	}
	all := map[string]*zip.File{}
	for _, m := range members {
		name := strings.TrimSuffix(m.Name, "/")
		if !fs.ValidPath(name) || name == "." || strings.ContainsAny(name, "\\\x00") {
			return nil, fmt.Errorf("the member %.80q: names are paths inside the archive, without .. and \\", m.Name)
		}
		if all[name] != nil {
			return nil, fmt.Errorf("the member %.80q is there twice", m.Name)
		}
		if m.Flags&1 != 0 {
			return nil, fmt.Errorf("the member %.80q is encrypted: torch encrypts nothing; save the model again", m.Name)
		}
		all[name] = m
	}
	root, err := rootOf(all)
	if err != nil {
		return nil, err
	}
	a := &archive{members: map[string]*zip.File{}, size: size}
	for name, m := range all {
		if inner, ok := strings.CutPrefix(name, root); ok {
			a.members[inner] = m
		}
	}
	if err := a.checkLayout(); err != nil {
		return nil, err
	}
	return a, a.findModel()
}

const formatMember = "archive_format"

// rootOf finds the top folder, such as "resnet18/", which torch names after the file; "" if there is none.
func rootOf(all map[string]*zip.File) (string, error) {
	var roots []string
	for name := range all {
		root, found := strings.CutSuffix(name, formatMember)
		if found && strings.Count(root, "/") <= 1 && (root == "" || strings.HasSuffix(root, "/")) {
			roots = append(roots, root)
		}
	}
	if len(roots) == 1 {
		return roots[0], nil
	}
	if len(roots) > 1 {
		slices.Sort(roots)
		return "", fmt.Errorf("the folders %.80q and %.80q both hold an archive: give one", roots[0], roots[1])
	}
	for name := range all {
		base := name[strings.LastIndex(name, "/")+1:]
		switch base {
		case "serialized_exported_program.json":
			return "", errOld("the layout of torch 2.7 and older (serialized_exported_program.json)")
		case "graph.json":
			return "", fmt.Errorf("python/millrace_export.py wrote it: give --from torch")
		case "data.pkl", "constants.pkl":
			return "", fmt.Errorf("it holds a pickle (%.80s), of torch.save or torch.jit.save: save "+
				"torch.export.export(module, inputs) by torch.export.save, or use millrace_export.py", name)
		}
	}
	return "", fmt.Errorf("there is no %s in it: give a file of torch.export.save", formatMember)
}

// errOld returns the error for a format that keeps weights in a pickle.
func errOld(what string) error {
	return fmt.Errorf("it has %s, whose weights are a pickle, which is never read: load it by torch.export.load and "+
		"save it again with torch 2.9 or later, or use millrace_export.py", what)
}

// checkLayout refuses archives of another format, version or byte order.
func (a *archive) checkLayout() error {
	for _, want := range []struct{ member, text string }{
		{formatMember, "pt2"}, {"archive_version", "0"}, {"byteorder", "little"},
	} {
		if a.members[want.member] == nil && want.member != formatMember {
			continue
		}
		text, err := a.read(want.member)
		if err != nil {
			return err
		}
		if string(text) != want.text {
			return fmt.Errorf("%s is %.20q: only %q is known", want.member, text, want.text)
		}
	}
	return nil
}

// findModel finds the one model of the archive.
func (a *archive) findModel() error {
	var names []string
	for member := range a.members {
		name, inside := strings.CutPrefix(member, "models/")
		name, text := strings.CutSuffix(name, ".json")
		if inside && text && name != "" && !strings.Contains(name, "/") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) == 0 {
		return fmt.Errorf("there is no models/NAME.json in it (a package of AOTInductor has none): save what " +
			"torch.export.export returns by torch.export.save")
	}
	if len(names) > 1 {
		return fmt.Errorf("it holds %d models, among them %.80s and %.80s: save one alone", len(names), names[0], names[1])
	}
	a.name = names[0]
	if old := "data/weights/" + a.name + ".pt"; a.members[old] != nil {
		return errOld("the layout of torch 2.8 (" + old + ")")
	}
	return nil
}

// model returns the name of the member that describes the model.
func (a *archive) model() string { return "models/" + a.name + ".json" }

// read returns a whole member. The member may be compressed, but not larger than maxText.
func (a *archive) read(member string) ([]byte, error) {
	m := a.members[member]
	if m == nil {
		return nil, fmt.Errorf("%s: there is no such member", member)
	}
	if m.UncompressedSize64 > maxText {
		return nil, fmt.Errorf("%s: it has %d bytes: at most %d", member, m.UncompressedSize64, maxText)
	}
	r, err := m.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	defer r.Close()
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", member, err)
	}
	if len(text) > maxText {
		return nil, fmt.Errorf("%s: it has more than the %d bytes that it may have", member, maxText)
	}
	return text, nil
}

// verify reads a member to check its checksum.
func (a *archive) verify(member string) error {
	r, err := a.members[member].Open()
	if err != nil {
		return fmt.Errorf("%s: %w", member, err)
	}
	_, err = io.Copy(io.Discard, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: it is damaged (%w): copy or save the file again", member, err)
	}
	return nil
}

// locate returns where in the file the bytes of a member are.
func (a *archive) locate(member string) (at, size int64, err error) {
	m := a.members[member]
	if m == nil {
		return 0, 0, fmt.Errorf("%s: there is no such member", member)
	}
	if m.Method != zip.Store || m.CompressedSize64 != m.UncompressedSize64 || m.UncompressedSize64 > 1<<50 {
		return 0, 0, fmt.Errorf("%s: it is compressed (method %d, %d bytes of %d): torch compresses nothing; "+
			"save the model again", member, m.Method, m.CompressedSize64, m.UncompressedSize64)
	}
	at, err = m.DataOffset()
	if err != nil {
		return 0, 0, fmt.Errorf("%s: %w", member, err)
	}
	if size := int64(m.UncompressedSize64); size > a.size-at {
		return 0, 0, fmt.Errorf("%s: its %d bytes from byte %d are more than the file has: it is cut off", member, size, at)
	}
	return at, int64(m.UncompressedSize64), nil
}
