package prepare

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace-ml/millrace/job"
	"github.com/millrace-ml/millrace/model"
)

// TestQuota: the quota is the least quota of a process's control groups, in both versions of cgroup files.
func TestQuota(t *testing.T) {
	for want, groups := range map[float64]map[string]string{
		0:   {"": "max 100000", "job/step": "max 100000", "cpu,cpuacct/old": "-1 100000"},
		1.5: {"": "max 100000", "job": "400000 100000", "job/step": "150000 100000"},
		0.5: {"job": "50000 100000", "job/step": "max 100000", "cpu,cpuacct/old": "100000 100000"},
		2:   {"job": "200000 100000", "job/step": "damaged"},
		3:   {"job": "400000 100000", "cpu,cpuacct": "300000 100000", "cpu,cpuacct/old": "-1 100000"},
		4:   {"job": "400000 100000", "memory/old": "100000 100000"},
	} {
		root := t.TempDir()
		write := func(name, text string) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		write("proc/self/cgroup", "5:memory:/old\n4:cpu,cpuacct:/old\n0::/job/step\n")
		for group, limit := range groups {
			at := filepath.Join("sys/fs/cgroup", group)
			if time, every, _ := strings.Cut(limit, " "); strings.Contains(group, "cpu") || strings.Contains(group, "memory") {
				write(filepath.Join(at, "cpu.cfs_quota_us"), time+"\n")
				write(filepath.Join(at, "cpu.cfs_period_us"), every+"\n")
				continue
			}
			write(filepath.Join(at, "cpu.max"), limit+"\n")
		}
		if got := quota(root); got != want {
			t.Errorf("%v: %v, want %v", groups, got, want)
		}
	}
	f := Facts{Count: 4}
	for quota, want := range map[float64]int{0: 4, 0.5: 1, 1.5: 1, 2: 2, 9: 4} {
		if f.Quota = quota; f.Cores() != want {
			t.Errorf("a quota of %v of 4 is %d cores, want %d", quota, f.Cores(), want)
		}
	}
}

// Hosts of two kinds that share a cache folder keep separate profiles, even if they have the same number of whole
// cores.
func TestUnequalHostsKeepTheirOwnProfiles(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	j := job.Default()
	path := func(f Facts, onHost int) string {
		return keptIn(&j, &model.Model{Name: "mlp"}, f.Kind(1, onHost)).record
	}
	one := Facts{CPU: "x", Count: 8, Quota: 1, Device: "cpu"}
	two := one
	if two.Quota = 1.9; one.Cores() != two.Cores() {
		t.Fatal("the hosts have unequal whole cores")
	}
	again := path(one, 1)
	if path(one, 1) == path(two, 1) || path(one, 1) == path(one, 2) || path(one, 1) != again {
		t.Errorf("%s, %s, %s", path(one, 1), path(two, 1), path(one, 2))
	}
}
