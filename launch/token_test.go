package launch

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestTokens(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const secret = "0123456789abcdef"
	for _, c := range []struct {
		name  string
		token Token
		want  string
	}{
		{"a variable", Token{Variable: TokenVar}, ""},
		{"a file", Token{File: write("good", secret+"\n", 0o600)}, ""},
		{"a group's file", Token{File: write("group", secret+"\n", 0o640)}, ""},
		{"everybody's file", Token{File: write("open", secret, 0o644)}, "can be read or changed by others (mode " +
			"-rw-r--r--); chmod 600 it"},
		{"a short one", Token{File: write("short", " 12345\n", 0o600)}, "has 5 bytes; give one of 16 to 4096"},
		{"a long one", Token{File: write("long", strings.Repeat("x", 9000), 0o600)}, "at most 8192 are read"},
		{"no file", Token{File: filepath.Join(dir, "none")}, "no such file"},
		{"a device", Token{File: "/dev/zero"}, "is a device"},
		{"an unset variable", Token{Variable: "NONE"}, "has 0 bytes"},
	} {
		got, err := c.token.Read([]string{TokenVar + "=" + secret})
		if c.want == "" && (err != nil || string(got) != secret) || c.want != "" && (err == nil ||
			!strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "12345") {
			t.Errorf("%s: %v tells the token", c.name, err)
		}
	}
}

// The user's own token is made once, by the first process that asks, and others cannot read it.
func TestOwnToken(t *testing.T) {
	home := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", home)
	tokens := make([][]byte, 20)
	var all sync.WaitGroup
	for i := range tokens {
		all.Go(func() {
			var err error
			if tokens[i], err = (Token{}).Read(nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, token := range tokens {
		if len(token) != 64 || !bytes.Equal(token, tokens[0]) {
			t.Errorf("%q beside %q", token, tokens[0])
		}
	}
	files, err := os.ReadDir(filepath.Join(home, "millrace"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := files[0].Info(); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}
