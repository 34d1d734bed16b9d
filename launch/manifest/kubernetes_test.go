package manifest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	k8sjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/millrace-ml/millrace/launch"
)

// pods returns a Spec of n pods in which every field is set.
func pods(n int) Spec {
	s := Spec{Name: "gpt", Command: []string{"millrace", "train", "--job", "/etc/millrace/job.yaml", "--out",
		"/data/run $(HOME)"},
		Cores: 4, MemoryBytes: 3 << 30, Limit: 2 * time.Hour, Grace: 90 * time.Second, Restarts: 3,
		Image: "registry.example/millrace:1", Claim: "data", MountAt: "/data",
		Files:    map[string]string{"job.yaml": "model: gpt\nbatch: 32\n"},
		Selector: map[string]string{"pool": "cpu"}, Namespace: "ml"}
	for range n {
		s.Hosts = append(s.Hosts, Host{Processes: 1})
	}
	return s
}

// documents returns the YAML documents of a file as JSON, by kind.
func documents(t testing.TB, text string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for one := range strings.SplitSeq(text, "\n---\n") {
		doc, err := yaml.YAMLToJSONStrict([]byte(one))
		if err != nil {
			t.Fatalf("%v\n%s", err, one)
		}
		var head struct{ Kind string }
		if err := json.Unmarshal(doc, &head); err != nil {
			t.Fatal(err)
		}
		all[head.Kind] = doc
	}
	return all
}

// strict decodes JSON into a Kubernetes type. Like the API server, it refuses unknown and repeated fields.
func strict[T any](t testing.TB, text []byte) *T {
	t.Helper()
	into := new(T)
	wrong, err := k8sjson.UnmarshalStrict(text, into)
	if err != nil || len(wrong) > 0 {
		t.Fatalf("%T: %v %v\n%s", into, err, wrong, text)
	}
	return into
}

// written returns the documents of a kind of manifest.
func written(t testing.TB, kind string, s Spec) map[string][]byte {
	t.Helper()
	text, err := Write(kind, s)
	if err != nil {
		t.Fatal(err)
	}
	return documents(t, text)
}

func TestIndexedJobIsAJob(t *testing.T) {
	docs := written(t, "k8s", pods(4))
	service := strict[corev1.Service](t, docs["Service"])
	files := strict[corev1.ConfigMap](t, docs["ConfigMap"])
	job := strict[batchv1.Job](t, docs["Job"])
	if len(docs) != 3 {
		t.Errorf("%d documents", len(docs))
	}
	spec := job.Spec
	if *spec.Completions != 4 || *spec.Parallelism != 4 || *spec.CompletionMode != batchv1.IndexedCompletion ||
		*spec.BackoffLimit != 12 ||
		*spec.ActiveDeadlineSeconds != 7200 || *spec.PodReplacementPolicy != batchv1.Failed || job.Namespace != "ml" {
		t.Errorf("%s", docs["Job"])
	}
	pod := spec.Template.Spec
	if pod.Subdomain != service.Name || service.Spec.ClusterIP != "None" || !service.Spec.PublishNotReadyAddresses ||
		service.Spec.Selector["batch.kubernetes.io/job-name"] != job.Name {
		t.Errorf("pods of %q in %+v", pod.Subdomain, service.Spec)
	}
	if files.Data["job.yaml"] != "model: gpt\nbatch: 32\n" || pod.Volumes[1].ConfigMap.Name != files.Name {
		t.Errorf("%+v", files.Data)
	}
	checkPod(t, &spec.Template)
	checkRules(t, spec.PodFailurePolicy, container)
	if last := spec.PodFailurePolicy.Rules[1]; last.Action != batchv1.PodFailurePolicyActionIgnore ||
		last.OnPodConditions[0].Type != corev1.DisruptionTarget || last.OnPodConditions[0].Status != corev1.ConditionTrue {
		t.Errorf("%+v", last)
	}
}

// checkPod checks the parts of a pod that are the same in all kinds of manifest.
func checkPod(t *testing.T, template *corev1.PodTemplateSpec) {
	t.Helper()
	pod := template.Spec
	c := pod.Containers[0]
	if pod.RestartPolicy != corev1.RestartPolicyNever || *pod.TerminationGracePeriodSeconds != 90 ||
		pod.NodeSelector["pool"] != "cpu" ||
		len(pod.Containers) != 1 || c.Image != "registry.example/millrace:1" ||
		c.Ports[0].ContainerPort != launch.DefaultPort {
		t.Errorf("%+v", pod)
	}
	if want := []string{"millrace", "train", "--job", "/etc/millrace/job.yaml", "--out",
		"/data/run $$(HOME)"}; !slices.Equal(c.Command, want) {
		t.Errorf("%q", c.Command)
	}
	cpu, memory := c.Resources.Requests.Cpu(), c.Resources.Limits.Memory()
	if cpu.Value() != 4 || memory.Value() != 3<<30 || c.VolumeMounts[0].MountPath != "/data" ||
		c.VolumeMounts[1].MountPath != FilesAt ||
		pod.Volumes[0].PersistentVolumeClaim.ClaimName != "data" {
		t.Errorf("%+v", c)
	}
	apart := pod.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
	for name, value := range apart.LabelSelector.MatchLabels {
		if template.Labels[name] != value {
			t.Errorf("pods with labels %v keep from those with %v", template.Labels, apart.LabelSelector.MatchLabels)
		}
	}
}

// checkRules checks the exit codes of a pod failure policy. A code after which another start does not help, such as
// that of a crash, must fail the Job; other codes must not.
func checkRules(t *testing.T, policy *batchv1.PodFailurePolicy, container string) {
	t.Helper()
	first := policy.Rules[0]
	if first.Action != batchv1.PodFailurePolicyActionFailJob || first.OnExitCodes == nil ||
		*first.OnExitCodes.ContainerName != container || !slices.IsSorted(first.OnExitCodes.Values) { // as the API requires
		t.Fatalf("%+v", first)
	}
	for code := int32(1); code < 256; code++ { // exit codes of failed containers
		in := slices.Contains(first.OnExitCodes.Values, code)
		ends := in == (first.OnExitCodes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn)
		if ends == slices.Contains([]int32{3, 129, 130, 137, 143}, code) {
			t.Errorf("code %d ends the job: %v", code, ends)
		}
	}
}

// jobSetSpec has the fields of a JobSet that the tests check. JobSet's Go module is not available, so the other fields
// are checked by the schema of JobSet.
type jobSetSpec struct {
	Network struct {
		Subdomain                string
		PublishNotReadyAddresses bool
	}
	FailurePolicy struct {
		MaxRestarts     int
		RestartStrategy string
		Rules           []struct {
			Action              string
			OnJobFailureReasons []string
		}
	}
	ReplicatedJobs []struct {
		Name     string
		Replicas int
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     json.RawMessage
		}
	}
}

func TestJobSetIsAJobSet(t *testing.T) {
	docs := written(t, "jobset", pods(4))
	validate(t, "jobset.x-k8s.io_jobsets", docs["JobSet"])
	var set struct{ Spec jobSetSpec }
	if err := json.Unmarshal(docs["JobSet"], &set); err != nil {
		t.Fatal(err)
	}
	job := strict[batchv1.JobSpec](t, set.Spec.ReplicatedJobs[0].Template.Spec)
	if *job.Completions != 4 || *job.Parallelism != 4 || *job.BackoffLimit != 0 ||
		*job.CompletionMode != batchv1.IndexedCompletion {
		t.Errorf("%+v", job)
	}
	checkPod(t, &job.Template)
	checkRules(t, job.PodFailurePolicy, container)
	checkFailurePolicy(t, set.Spec)
	if at := set.Spec.ReplicatedJobs[0].Name; at != workers || set.Spec.Network.Subdomain != "gpt" ||
		!set.Spec.Network.PublishNotReadyAddresses {
		t.Errorf("pods of %q in %+v", at, set.Spec.Network)
	}
}

// checkFailurePolicy checks that a JobSet fails if a Job ended because of an exit code or its time limit. After any
// other end of a Job, the set must start the Job again.
func checkFailurePolicy(t *testing.T, s jobSetSpec) {
	t.Helper()
	p := s.FailurePolicy
	if p.MaxRestarts != 3 || p.RestartStrategy != "BlockingRecreate" || len(p.Rules) != 1 ||
		p.Rules[0].Action != "FailJobSet" ||
		!slices.Equal(p.Rules[0].OnJobFailureReasons, []string{batchv1.JobReasonPodFailurePolicy,
			batchv1.JobReasonDeadlineExceeded}) {
		t.Errorf("%+v", p)
	}
}

func TestTrainJobIsATrainJob(t *testing.T) {
	docs := written(t, "trainjob", pods(4))
	validate(t, "trainer.kubeflow.org_trainjobs", docs["TrainJob"])
	var job struct {
		Spec struct {
			RuntimeRef struct{ Kind, Name string }
			Trainer    struct {
				Command                  []string
				NumNodes, NumProcPerNode int
			}
		}
	}
	var runtime struct {
		Metadata struct{ Name string }
		Spec     struct {
			MLPolicy struct{ NumNodes int }
			Template struct{ Spec json.RawMessage }
		}
	}
	if err := json.Unmarshal(docs["TrainJob"], &job); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(docs["TrainingRuntime"], &runtime); err != nil {
		t.Fatal(err)
	}
	if job.Spec.RuntimeRef.Name != runtime.Metadata.Name || job.Spec.RuntimeRef.Kind != "TrainingRuntime" ||
		job.Spec.Trainer.NumNodes != 4 ||
		job.Spec.Trainer.NumProcPerNode != 1 || runtime.Spec.MLPolicy.NumNodes != 4 || len(job.Spec.Trainer.Command) != 6 {
		t.Errorf("%+v, %+v", job, runtime)
	}
	// The runtime's template has the form of a JobSet.
	validate(t, "jobset.x-k8s.io_jobsets",
		[]byte(fmt.Sprintf(`{"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": %s}`,
			runtime.Spec.Template.Spec)))
	var set jobSetSpec
	if err := json.Unmarshal(runtime.Spec.Template.Spec, &set); err != nil {
		t.Fatal(err)
	}
	checkFailurePolicy(t, set)
	spec := strict[batchv1.JobSpec](t, set.ReplicatedJobs[0].Template.Spec)
	checkPod(t, &spec.Template)
	checkRules(t, spec.PodFailurePolicy, node)
	if set.ReplicatedJobs[0].Template.Metadata.Labels["trainer.kubeflow.org/trainjob-ancestor-step"] != "trainer" ||
		set.ReplicatedJobs[0].Name != node || spec.Template.Spec.Containers[0].Name != node {
		t.Errorf("%s", runtime.Spec.Template.Spec)
	}
}

// Pods started from a manifest get the right rank and address.
func TestPodsKnowTheirPlace(t *testing.T) {
	const n = 3
	for kind, c := range map[string]struct {
		launcher launch.Launcher
		address  string
		// further variables and fields of a pod that Kubernetes' controllers set
		env    func(i int) []string
		fields map[string]string
	}{
		"k8s": {launch.IndexedJob, "gpt-0.gpt", func(i int) []string { return []string{fmt.Sprint("HOSTNAME=gpt-", i)} },
			map[string]string{"metadata.labels['batch.kubernetes.io/controller-uid']": "7-3"}},
		"jobset": {launch.JobSet, "gpt-workers-0-0.gpt",
			func(i int) []string { return []string{fmt.Sprint("HOSTNAME=gpt-workers-0-", i)} },
			map[string]string{"metadata.annotations['jobset.sigs.k8s.io/restart-attempt']": "2"}},
		"trainjob": {launch.TrainJob, "gpt-node-0-0.gpt", func(i int) []string {
			return []string{"PET_NNODES=3", "PET_NPROC_PER_NODE=1", fmt.Sprint("PET_NODE_RANK=", i),
				"PET_MASTER_ADDR=gpt-node-0-0.gpt",
				"PET_MASTER_PORT=29500", fmt.Sprint("HOSTNAME=gpt-node-0-", i)}
		}, map[string]string{"metadata.annotations['jobset.sigs.k8s.io/restart-attempt']": "2"}},
	} {
		s := pods(n)
		s.TLS = true
		env := environmentOf(t, kind, written(t, kind, s), c.fields)
		meet := map[string]bool{}
		for i := range n {
			w, err := launch.FromEnv(slices.Concat(env, c.env(i), []string{fmt.Sprint("JOB_COMPLETION_INDEX=", i)}))
			if err != nil {
				t.Errorf("%s: %v", kind, err)
				continue
			}
			meet[w.Meet()+" "+w.RunID] = true
			if w.Launcher != c.launcher || w.Rank != i || w.Size != n || w.Address != c.address ||
				w.Token.Variable != launch.TokenVar || w.TLS == nil || w.Port != launch.DefaultPort ||
				w.RunID != map[string]string{"k8s": "7-3", "jobset": "gpt", "trainjob": "gpt"}[kind] ||
				kind != "k8s" && w.Restart != 2 || !w.StartedBefore() {
				t.Errorf("%s: pod %d is %+v", kind, i, w)
			}
		}
		if len(meet) != 1 {
			t.Errorf("%s: pods meet at %v", kind, meet)
		}
	}
}

// environmentOf returns the variables of a manifest's container, as the kubelet sets them.
func environmentOf(t *testing.T, kind string, docs map[string][]byte, fields map[string]string) []string {
	t.Helper()
	var vars []corev1.EnvVar
	switch kind {
	case "k8s":
		vars = strict[batchv1.Job](t, docs["Job"]).Spec.Template.Spec.Containers[0].Env
	case "jobset":
		var set struct{ Spec jobSetSpec }
		if err := json.Unmarshal(docs["JobSet"], &set); err != nil {
			t.Fatal(err)
		}
		vars = strict[batchv1.JobSpec](t, set.Spec.ReplicatedJobs[0].Template.Spec).Template.Spec.Containers[0].Env
	case "trainjob":
		var job struct {
			Spec struct{ Trainer struct{ Env []corev1.EnvVar } }
		}
		if err := json.Unmarshal(docs["TrainJob"], &job); err != nil {
			t.Fatal(err)
		}
		vars = job.Spec.Trainer.Env
	}
	var env []string
	for _, v := range vars {
		switch from := v.ValueFrom; {
		case from == nil:
			env = append(env, v.Name+"="+v.Value)
		case from.SecretKeyRef != nil:
			if from.SecretKeyRef.Name != "gpt-token" || from.SecretKeyRef.Key != "token" {
				t.Errorf("%s: %+v", kind, from.SecretKeyRef)
			}
			env = append(env, v.Name+"=0123456789abcdef")
		case from.FieldRef != nil:
			value, known := fields[from.FieldRef.FieldPath]
			if !known {
				t.Errorf("%s: pods have no %q", kind, from.FieldRef.FieldPath)
			}
			env = append(env, v.Name+"="+value)
		}
	}
	return env
}
