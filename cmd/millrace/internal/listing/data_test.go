package listing

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/data"
)

// TestDataSetsAreListed: each data set is listed with its size and place. For a missing set, the list says how to
// install it.
func TestDataSetsAreListed(t *testing.T) {
	all := listedSources{Builtin: []listedData{{Name: "digits", Doc: "pictures", Bytes: 2048},
		{Name: "clothes", Doc: "more pictures", Path: "/usr/share/clothes", Missing: "not installed; install it"},
		{Name: "cats", Doc: "photographs", Path: "/usr/share/cats", Bytes: 3 << 20}}, Files: data.Formats()}
	var b bytes.Buffer
	if err := all.print(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"digits   pictures       2.00 KiB  in the program millrace\n",
		"clothes  more pictures         -  /usr/share/clothes\n", "cats     photographs    3.00 MiB  /usr/share/cats\n",
		"\nclothes is not installed; install it\n", "FILE.npz, FILE.safetensors"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
}
