package job_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
)

// A model file in place of a job file is refused, and the error names the flag for model files.
func TestAModelIsNoJob(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own.yaml": "name: own\ninputs: [{name: x, shape: [4]}]\nlayers:\n  - {name: a, kind: dense, width: 2}\n",
		"own.mr":   "PK",
		"own.pt2":  "PK",
	} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		var j job.Job
		if err := j.Read(path); err == nil || !strings.HasSuffix(err.Error(), "give it with --model "+path) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
