package checkpoint

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/plan"
)

// A change of any bit of a manifest is noticed, including its version, its checksum and its keys.
func TestEveryBitOfAManifestIsHeld(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	path, err := written(s, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(path, manifestName))
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		for bit := range 8 {
			changed := bytes.Clone(whole)
			changed[i] ^= 1 << bit
			if m, err := decodeManifest(changed); err == nil {
				t.Errorf("bit %d of byte %d, %q, is not held: %+v", bit, i, changed[max(0, i-20):min(len(changed), i+20)], m)
			}
		}
	}
	if _, err := decodeManifest(whole); err != nil {
		t.Error(err)
	}
}

// listed returns the manifest m with one file in its list. The file does not exist: only the manifest's text is tested.
func listed(m Manifest) Manifest {
	m.Version = Version
	m.Files = []File{{Name: "a.safetensors", Bytes: 8, CRC32C: "00000000"}}
	return m
}

// sealed replaces the checksum in a text with the right one.
func sealed(text string) []byte {
	at := strings.Index(text, "\"manifest_sha256\": \"")
	if at < 0 {
		return []byte(text)
	}
	at += len("\"manifest_sha256\": \"")
	end := at + strings.Index(text[at:], "\"")
	return []byte(text[:at] + sumOf([]byte(text[:at]+text[end:])) + text[end:])
}

func TestManifestsAreChecked(t *testing.T) {
	good := listed(manifest(6))
	good.Clip = 0.5
	text, err := good.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodeManifest(text); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ from, to, says string }{
		{`"version": 2`, `"version": 3`, "version is 3; this millrace reads 1 and 2"},
		{`"version": 2`, `"version": 1`, "which version 2 brought"},
		{`"steps": 6`, `"steps": -1`, "steps"},
		{`"steps": 6`, `"steps": 2`, "samples is 48; 2 steps of 1 pipelines with batches of 8"},
		{`"steps": 6`, `"Steps": 6`, `key "Steps" is none`},
		{`"steps": 6`, `"steps": 6, "steps": 6`, `key "steps" stands twice`},
		{`"base": 0.1`, `"Base": 0.1`, `key "rate.Base" is none`},
		{`"batch": 8`, `"batch": 0`, "batch"},
		{`"micro_batch": 2`, `"micro_batch": 0`, "micro_batch"},
		{`"samples": 48`, `"samples": -8`, "samples"},
		{`"samples": 48`, `"samples": 56`, "samples is 56; 6 steps"},
		{`"samples": 48`, `"samples": 9223372036854775800`, "steps of 1 pipelines"},
		{`"a.safetensors"`, `"../a.safetensors"`, "file name"},
		{`"a.safetensors"`, `"manifest.json"`, "file name"},
		{`"a.safetensors"`, `""`, "file name"},
		{`"bytes": 8`, `"bytes": -8`, "bytes"},
		{`"seed": 3`, `"sead": 3`, "sead"},
		{`"seed": 3`, `"seed": 3, "updates": {"conv": 7}`, "updates of layer conv are 7 in 6 steps"},
		{`"seed": 3`, `"seed": 3, "updates": {"conv": -1}`, "updates of layer conv are -1"},
		{`"seed": 3`, `"seed": "x"`, "seed"},
		{`"asked": {
    "steps": 100
  },`, ``, "asked is missing"},
	} {
		bad := strings.Replace(string(text), c.from, c.to, 1)
		if bad == string(text) {
			t.Fatalf("%s is not in the manifest", c.from)
		}
		if _, err := decodeManifest([]byte(bad)); err == nil {
			t.Errorf("%s: read under the checksum of another text", c.to)
		}
		if _, err := decodeManifest(sealed(bad)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q in it", c.to, err, c.says)
		}
	}
	for i := range text[:len(text)-1] {
		if _, err := decodeManifest(text[:i]); err == nil {
			t.Errorf("a manifest cut after byte %d was read", i)
		}
	}
}

// A manifest of version 1 can be read. A version 2 manifest without its checksum is not accepted as version 1.
func TestManifestsOfVersion1(t *testing.T) {
	old := listed(manifest(6))
	old.Version, old.Asked, old.Plan = bare, nil, &plan.Plan{Version: 1, Elastic: plan.NewElastic(2)}
	old.Samples *= 2
	text, err := old.encode()
	if err != nil {
		t.Fatal(err)
	}
	if m, err := decodeManifest(text); err != nil || m.Pipelines() != 2 || m.Steps != 6 {
		t.Errorf("%+v, %v", m, err)
	}
	for from, to := range map[string]string{
		`"samples": 96`:      `"samples": 40`, // fewer samples than one batch for each step
		`"steps": 6`:         `"Steps": 6`,
		`"loss": 0`:          `"loss": 0, "asked": {"steps": 9}`,
		`"crc32c": "0000000`: `"manifest_sha256": "", "crc32c": "0000000`,
	} {
		bad := strings.Replace(string(text), from, to, 1)
		if _, err := decodeManifest([]byte(bad)); err == nil || bad == string(text) {
			t.Errorf("%s: it was read", to)
		}
	}
	current := listed(manifest(6))
	whole, err := current.encode()
	if err != nil {
		t.Fatal(err)
	}
	at := strings.Index(string(whole), ",\n  \"manifest_sha256\"")
	for _, version := range []string{`"version": 2`, `"version": 1`} {
		stripped := strings.Replace(string(whole[:at])+"\n}\n", `"version": 2`, version, 1)
		if _, err := decodeManifest([]byte(stripped)); err == nil {
			t.Errorf("%s without manifest_sha256 was read", version)
		}
	}
}

// The samples are counted from the last change of the number of pipelines.
func TestSamplesCountFromTheLastChangeOfPipelines(t *testing.T) {
	m := listed(manifest(0))
	m.Steps, m.Samples, m.Plan = 10, 4*8+6*8*3, &plan.Plan{Version: 1, Elastic: plan.NewElastic(3)}
	m.Asked.Since = Position{Steps: 4, Samples: 4 * 8}
	if text, err := m.encode(); err != nil {
		t.Error(err)
	} else if _, err := decodeManifest(text); err != nil {
		t.Error(err)
	}
	m.Asked = &Asked{Steps: 100}
	if err := m.check(); err == nil {
		t.Error("samples of another number of pipelines pass")
	}
}

// A checkpoint in a folder named after another step is refused.
func TestAFolderIsNamedAfterItsSteps(t *testing.T) {
	s := &Store{Dir: t.TempDir()}
	path, err := written(s, 4, 1)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(s.Dir, "step-00000009")
	if err := os.Rename(path, other); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{other, s.Dir} {
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), "steps is 4, and the folder is that of 9 steps") {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := os.Rename(other, filepath.Join(s.Dir, "best")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(s.Dir, "best")); err != nil {
		t.Errorf("a copy under a name of somebody's own: %v", err)
	}
}

func FuzzManifest(f *testing.F) {
	good := listed(manifest(1))
	text, err := good.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(text))
	f.Add(`{"version":1,"files":[{}]}`)
	f.Add(`{"version":1,"batch":1,"micro_batch":1,"rate":{"kind":"step"},"optimizer":{"kind":"sgd"},` +
		`"files":[{"name":"a"}]}`)
	f.Fuzz(func(t *testing.T, s string) {
		m, err := decodeManifest(sealed(s))
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if filepath.Base(file.Name) != file.Name {
				t.Fatalf("%q leaves the directory", file.Name)
			}
		}
		if again, err := m.encode(); err != nil {
			t.Fatal(err)
		} else if _, err := decodeManifest(again); err != nil {
			t.Fatalf("what was read cannot be written and read again: %v", err)
		}
	})
}
