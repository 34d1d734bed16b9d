package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/millrace-ml/millrace/profile/importer"
)

// publishedProfile is the profile of a published artifact. It also holds the seconds that the artifact's planner took
// for the profile, if they are known. The seconds were measured on one core of another machine. They are right within a
// factor of three, so only the order of magnitude of a ratio means anything. For PipeDream's largest profile, the
// planner ran under a just-in-time compiler.
type publishedProfile struct {
	file, format  string
	batch         int
	flat, servers float64 // on 16 devices: `flat` in one level, `servers` in 4x4 (DAPPLE: 8x2); 0: unknown
}

var publishedProfiles = []publishedProfile{
	{"pipedream-vgg16", "pipedream", 128, 0.3, 0.3},
	{"pipedream-alexnet", "pipedream", 256, 0, 0},
	{"pipedream-resnet50", "pipedream", 128, 9, 100},
	{"pipedream-gnmt", "pipedream", 32, 4, 0},
	{"pipedream-gnmt_large", "pipedream", 128, 34, 735},
	{"pipedream-inception_v3", "pipedream", 128, 0, 0},
	{"dapple-vgg-19-pbs-32", "dapple", 32, 0, 0},
	{"dapple-gnmt-16-pbs-64", "dapple", 64, 0, 5},
	{"dapple-bert-48-pbs-2", "dapple", 2, 0, 0},
	{"dapple-xlnet-36-pbs-1", "dapple", 1, 0, 0},
	{"dapple-amoeba-36-pbs-1", "dapple", 1, 0, 0},
}

// PublishedQuestions returns questions for each published profile in a folder: on 16 devices in one level, and on 16
// devices in servers.
func PublishedQuestions(folder string) ([]PlanQuestion, error) {
	var questions []PlanQuestion
	for _, of := range publishedProfiles {
		path := filepath.Join(folder, of.file+".txt")
		if _, err := os.Stat(path); err != nil {
			continue // a folder may have only some profiles
		}
		p, _, err := importer.Read(path, importer.Options{Format: of.format, Batch: of.batch})
		if err != nil {
			return nil, err
		}
		servers, samples := []int{4, 4}, of.batch
		if of.format == "dapple" {
			servers, samples = []int{8, 2}, max(64, 16*of.batch)
		}
		for _, sizes := range [][]int{{16}, servers} {
			seconds := of.flat
			if len(sizes) > 1 {
				seconds = of.servers
			}
			q := PlanQuestion{profile: p, cluster: benchCluster(sizes...), batch: samples,
				published: map[string]float64{}}
			q.published[of.format] = seconds
			questions = append(questions, q)
		}
	}
	if len(questions) == 0 {
		return nil, fmt.Errorf("bench: %s has none of the published profiles, such as %s.txt", folder,
			publishedProfiles[0].file)
	}
	return questions, nil
}

// levelSizes formats the sizes of a cluster's levels, innermost first, as in 4x4.
func levelSizes(sizes []int) string {
	var out []string
	for _, n := range sizes {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, "x")
}
