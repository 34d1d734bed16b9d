package manifest

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"sigs.k8s.io/yaml"
)

// schemas caches the schemas of the CRDs.
var schemas sync.Map

// validate checks a resource against the schema of its CustomResourceDefinition. CEL rules are not checked.
func validate(t testing.TB, crd string, resource []byte) {
	t.Helper()
	if err := valid(t, crd, resource); err != nil {
		t.Errorf("%s: %v\n%s", crd, err, resource)
	}
}

func valid(t testing.TB, crd string, resource []byte) error {
	t.Helper()
	read, _ := schemas.LoadOrStore(crd, sync.OnceValue(func() *jsonschema.Resolved { return schemaOf(t, crd) }))
	schema := read.(func() *jsonschema.Resolved)()
	var instance any
	if err := json.Unmarshal(resource, &instance); err != nil {
		return err
	}
	return schema.Validate(instance)
}

func schemaOf(t testing.TB, crd string) *jsonschema.Resolved {
	t.Helper()
	f, err := os.Open("testdata/crds/" + crd + ".yaml.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	var definition struct {
		Spec struct {
			Versions []struct {
				Schema struct {
					OpenAPIV3Schema map[string]any `json:"openAPIV3Schema"`
				} `json:"schema"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err := yaml.Unmarshal(text, &definition); err != nil {
		t.Fatal(err)
	}
	open := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
	closed(open)
	text, err = json.Marshal(open)
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return resolved
}

// closed makes a schema refuse unknown fields, as the API server does in strict mode. A schema that does not list its
// fields still allows any field.
func closed(schema map[string]any) {
	_, lists := schema["properties"]
	_, says := schema["additionalProperties"]
	if open, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool); lists && !says && !open {
		schema["additionalProperties"] = false
	}
	for _, key := range slices.Collect(maps.Keys(schema)) {
		switch v := schema[key].(type) {
		case map[string]any:
			if key == "properties" {
				for _, p := range v {
					closed(p.(map[string]any))
				}
			} else if key == "items" || key == "additionalProperties" {
				closed(v)
			}
		}
		if strings.HasPrefix(key, "x-kubernetes") || key == "description" || key == "format" || key == "nullable" {
			delete(schema, key)
		}
	}
}

// TestSchemasRefuse changes one value or field of a good resource: the schemas must refuse the result.
func TestSchemasRefuse(t *testing.T) {
	for _, c := range []struct{ kind, doc, crd, from, to string }{
		{"jobset", "JobSet", "jobset.x-k8s.io_jobsets", `"BlockingRecreate"`, `"Blocking"`},
		{"jobset", "JobSet", "jobset.x-k8s.io_jobsets", `"failurePolicy"`, `"failurePolice"`},
		{"jobset", "JobSet", "jobset.x-k8s.io_jobsets", `"completions":4`, `"completions":"4"`},
		{"jobset", "JobSet", "jobset.x-k8s.io_jobsets", `"podFailurePolicy"`, `"podFailurePolice"`},
		{"trainjob", "TrainJob", "trainer.kubeflow.org_trainjobs", `"numNodes":4`, `"numNodes":-4`},
		{"trainjob", "TrainJob", "trainer.kubeflow.org_trainjobs", `"runtimeRef"`, `"runtime"`},
	} {
		good := string(written(t, c.kind, pods(4))[c.doc])
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good || valid(t, c.crd, []byte(bad)) == nil {
			t.Errorf("%s with %s in place of %s is taken", c.kind, c.to, c.from)
		}
	}
}

// Any text survives writing and reading YAML.
func FuzzScalar(f *testing.F) {
	for _, text := range []string{"", "yes", "No", "1e3", "0x1f", "~", "null", "a: b", "# c", "- d", "é\u2028x",
		"'\"\\\n\t", "1_000", "=", "<<", ".inf",
		"2026-11-22", "a\r\nb", "\x7f", "on", "y", "/a/b", "!t", "&a", "*a", "%", "@", "`", "{}", "[]", "\ufeff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ToValidUTF8(text, "") != text || len(text) > 100 { // YAML allows keys of at most 1,024 characters
			return
		}
		var got map[string]any
		doc := document(nil, mapping{{"key", text}, {"list", list{text}}, {text, mapping{{"inner", text}}}})
		if text == "key" || text == "list" {
			return
		}
		if err := yaml.UnmarshalStrict([]byte(doc), &got); err != nil {
			t.Fatalf("%q: %v\n%s", text, err, doc)
		}
		inner, _ := got[text].(map[string]any)
		if got["key"] != text || got["list"].([]any)[0] != text || inner["inner"] != text {
			t.Errorf("%q became %q by\n%s", text, got, doc)
		}
	})
}
