package words

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
)

// Help shows a flag of a job under the heading of its setting in a job file.
func TestHelpHasTheGroupsOfAJobFile(t *testing.T) {
	headings := map[string]string{}
	for _, g := range Groups() {
		for _, w := range g.Words {
			headings[w.Name] = strings.ToLower(g.Name)
		}
	}
	for _, o := range slices.Concat(job.ModelOptions, job.PlanOptions, job.ElasticOptions, job.ClusterOptions,
		job.TrainOptions) {
		j, given := job.Default(), false
		for _, value := range []string{"1", "true", "name=1"} {
			if o.Set(&j, value) == nil {
				given = true
				break
			}
		}
		text, err := j.Text()
		if err != nil || !given {
			t.Fatalf("--%s takes none of the values (%v)", o.Name, err)
		}
		var groups map[string]any
		if err := json.Unmarshal([]byte(text), &groups); err != nil || len(groups) != 1 {
			t.Fatalf("--%s sets %s (%v)", o.Name, text, err)
		}
		for group := range groups {
			if group != headings[o.Name] {
				t.Errorf("--%s stands under %q in help, and is set in %q", o.Name, headings[o.Name], group)
			}
		}
	}
}
