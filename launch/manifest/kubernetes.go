package manifest

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/millrace-ml/millrace/launch"
)

// container is the name of a pod's only container.
const container = "millrace"

// workers is the name of a JobSet's only group of pods.
const workers = "workers"

// onePod refuses what pods cannot do, and fills in the name of the Secret. Kubernetes places pods one by one, so a Spec
// for pods cannot give a host several processes, a name, or another type of device than the rest.
func (s *Spec) onePod() error {
	if n := s.most(); n > 1 {
		return fmt.Errorf("a host of the run has %d processes, and pods are placed one by one; give each process all "+
			"workers of a "+
			"host (--workers-per-process)", n)
	}
	if mixed := s.mixed(); mixed != nil {
		return fmt.Errorf("%w, and all pods of a run have one node selector, which cannot say which pod goes to which; "+
			"start unequal hosts by slurm or mpirun", mixed)
	}
	if s.named() {
		return fmt.Errorf("host %q has a name, and pods go to any node that --node-selector allows; leave names out",
			s.Hosts[0].Name)
	}
	if s.Image == "" {
		return errors.New("there is no image; give one with millrace and its native library in it")
	}
	if s.Secret == "" {
		s.Secret = s.Name + "-token"
	}
	for key, value := range s.Selector {
		if len(key) > maxKey || !labelKeys.MatchString(key) || len(value) > maxValue || !labelValues.MatchString(value) {
			return fmt.Errorf("%q=%q is no label of a node", key, value)
		}
	}
	for _, name := range []string{s.Secret, s.Claim, s.Namespace} {
		if name != "" && !resources.MatchString(name) {
			return fmt.Errorf("%q is no name in Kubernetes; it has lower-case letters, digits, dots and dashes", name)
		}
	}
	return nil
}

var (
	resources   = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`)
	labelKeys   = regexp.MustCompile(`^([a-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?$`)
	labelValues = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?)?$`)
)

// maxKey and maxValue are the largest lengths of a label's key and value, in bytes.
const maxKey, maxValue = 317, 63

// comments returns the comment lines at the head of a file.
func (s *Spec) comments(kind string) []string {
	in := ""
	if s.Namespace != "" {
		in = " -n " + s.Namespace
	}
	return []string{
		fmt.Sprintf("Written by millrace manifest %s. The token is in a Secret, made once by:", kind),
		fmt.Sprintf("  kubectl%s create secret generic %s --from-literal=token=\"$(openssl rand -hex 32)\"", in, s.Secret),
		fmt.Sprintf("Pods meet at port %d of the first one, and then reach each other at any port.", launch.DefaultPort),
	}
}

// metadata returns a name, labels, and the namespace if one is given.
func (s *Spec) metadata(name string, labels mapping) mapping {
	return mapping{}.add("name", name).add("namespace", s.Namespace).add("labels", labels)
}

// app returns the labels that all objects of a run have.
func (s *Spec) app() mapping {
	return mapping{{"app.kubernetes.io/name", "millrace"}, {"app.kubernetes.io/instance", s.Name}}
}

// indexedJob writes an Indexed Job, with a headless Service that gives its pods names.
func indexedJob(s *Spec) (string, error) {
	if err := s.onePod(); err != nil {
		return "", err
	}
	service := mapping{
		{"apiVersion", "v1"}, {"kind", "Service"}, {"metadata", s.metadata(s.Name, s.app())},
		{"spec", mapping{
			{"clusterIP", "None"},
			{"publishNotReadyAddresses", true}, // pods look for rank 0 before it is ready
			{"selector", mapping{{"batch.kubernetes.io/job-name", s.Name}}},
		}},
	}
	env := list{
		variable(launch.SizeVar, fmt.Sprint(s.processes())),
		// This label differs between Jobs. A pod that replaces another has the same label as the replaced one.
		field(launch.RunIDVar, "labels", "batch.kubernetes.io/controller-uid"),
		variable(launch.MasterAddrVar, s.Name+"-0."+s.Name),
	}
	env = append(env, s.common()...)
	// The eviction of a pod is not counted as a failure. If other pods lose the evicted pod as a peer, their failures
	// are counted.
	evicted := mapping{{"action", "Ignore"}, {"onPodConditions", list{mapping{{"type", "DisruptionTarget"}, {"status",
		"True"}}}}}
	spec := s.job(s.Restarts*s.processes(), append(finalRules(container), evicted))
	pod := s.pod(container, env).add("subdomain", s.Name)
	spec = spec.add("template", mapping{{"metadata", mapping{{"labels", s.app()}}}, {"spec", pod}})
	job := mapping{{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", s.metadata(s.Name, s.app())}, {"spec", spec}}
	return document(s.comments("k8s"), append(s.files(), service, job)...), nil
}

// jobSet writes a JobSet, which makes the Service itself and starts all pods again when one fails (failurePolicy).
func jobSet(s *Spec) (string, error) {
	if err := s.onePod(); err != nil {
		return "", err
	}
	env := list{
		variable("JOBSET_NAME", s.Name),
		variable("REPLICATED_JOB_NAME", workers),
		variable(launch.SizeVar, fmt.Sprint(s.processes())),
		restarts(),
		// This is the address that spec.coordinator would give. That field cannot be used: it becomes a label, and long
		// names do not fit a label.
		variable(launch.MasterAddrVar, fmt.Sprintf("%s-%s-0-0.%s", s.Name, workers, s.Name)),
	}
	env = append(env, s.common()...)
	spec := s.job(0, finalRules(container)).add("template",
		mapping{{"metadata", mapping{{"labels", s.app()}}}, {"spec", s.pod(container, env)}})
	set := mapping{
		{"apiVersion", "jobset.x-k8s.io/v1alpha2"}, {"kind", "JobSet"}, {"metadata", s.metadata(s.Name, s.app())},
		{"spec", mapping{
			{"network", mapping{{"enableDNSHostnames", true}, {"publishNotReadyAddresses", true}, {"subdomain", s.Name}}},
			{"failurePolicy", s.failurePolicy()},
			{"replicatedJobs", list{mapping{{"name", workers}, {"replicas", 1}, {"template", mapping{{"spec", spec}}}}}},
		}},
	}
	return document(s.comments("jobset"), append(s.files(), set)...), nil
}

// node is the name that Kubeflow's Trainer gives to its group of pods and to their container.
const node = "node"

// trainJob writes a TrainJob and its TrainingRuntime. The runtime says what a TrainJob cannot: when to start again,
// and how long pods may take to end after SIGTERM.
func trainJob(s *Spec) (string, error) {
	if err := s.onePod(); err != nil {
		return "", err
	}
	pod := s.pod(node, nil)
	spec := mapping{{"backoffLimit", 0}, {"podReplacementPolicy", "Failed"},
		{"podFailurePolicy", mapping{{"rules", finalRules(node)}}},
		{"template", mapping{{"metadata", mapping{{"labels", s.app()}}}, {"spec", pod}}}}
	step := mapping{{"trainer.kubeflow.org/trainjob-ancestor-step", "trainer"}}
	runtime := mapping{
		{"apiVersion", "trainer.kubeflow.org/v1alpha1"}, {"kind", "TrainingRuntime"},
		{"metadata", s.metadata(s.Name, append(s.app(), pair{"trainer.kubeflow.org/framework", "torch"}))},
		{"spec", mapping{
			{"mlPolicy", mapping{{"numNodes", s.processes()}, {"torch", mapping{}}}},
			{"template", mapping{{"spec", mapping{
				{"network", mapping{{"publishNotReadyAddresses", true}}},
				{"failurePolicy", s.failurePolicy()},
				{"replicatedJobs", list{mapping{{"name", node},
					{"template", mapping{{"metadata", mapping{{"labels", step}}}, {"spec", spec}}}}}},
			}}}},
		}},
	}
	trainer := mapping{{"image", s.Image}, {"command", argv(s.Command)},
		{"env", append(list{variable(launch.RunIDVar, s.Name), restarts()}, s.common()...)},
		{"numNodes", s.processes()}, {"numProcPerNode", 1}}
	trainer = trainer.add("resourcesPerNode", s.resources())
	from := mapping{{"apiGroup", "trainer.kubeflow.org"}, {"kind", "TrainingRuntime"}, {"name", s.Name}}
	jobSpec := mapping{{"runtimeRef", from}, {"trainer", trainer}}
	if s.Limit > 0 {
		jobSpec = jobSpec.add("activeDeadlineSeconds", int64(s.Limit.Seconds()))
	}
	job := mapping{{"apiVersion", "trainer.kubeflow.org/v1alpha1"}, {"kind", "TrainJob"},
		{"metadata", s.metadata(s.Name, s.app())}, {"spec", jobSpec}}
	return document(s.comments("trainjob"), append(s.files(), runtime, job)...), nil
}

// job returns the part of a Job's spec before the template of its pods.
func (s *Spec) job(backoff int, rules list) mapping {
	n := s.processes()
	m := mapping{{"completionMode", "Indexed"}, {"completions", n}, {"parallelism", n}, {"backoffLimit", backoff}}
	if s.Limit > 0 {
		m = m.add("activeDeadlineSeconds", int64(s.Limit.Seconds()))
	}
	return append(m, pair{"podReplacementPolicy", "Failed"}, pair{"podFailurePolicy", mapping{{"rules", rules}}})
}

// finalRules end a Job when a container fails with a code after which another start does not help.
func finalRules(container string) list {
	var values list
	for _, code := range launch.Again {
		values = append(values, code)
	}
	return list{mapping{{"action", "FailJob"},
		{"onExitCodes", mapping{{"containerName", container}, {"operator", "NotIn"}, {"values", values}}}}}
}

// failurePolicy starts all pods of a JobSet again, up to Spec.Restarts times. It does not start them if finalRules or
// the time limit ended the Job. New pods wait until the old ones are gone, so that no two processes have the same rank.
func (s *Spec) failurePolicy() mapping {
	return mapping{{"maxRestarts", s.Restarts}, {"restartStrategy", "BlockingRecreate"},
		{"rules", list{mapping{{"name", "final"}, {"action", "FailJobSet"}, {"onJobFailureReasons",
			list{"PodFailurePolicy", "DeadlineExceeded"}}}}}}
}

// pod returns the spec of a pod.
func (s *Spec) pod(container string, env list) mapping {
	c := mapping{{"name", container}, {"image", s.Image}, {"command", argv(s.Command)}}.add("env", env)
	c = append(c, pair{"ports", list{mapping{{"name", "rendezvous"}, {"containerPort", launch.DefaultPort}}}})
	c = c.add("resources", s.resources())
	var mounts, volumes list
	if s.Claim != "" {
		mounts = append(mounts, mapping{{"name", "data"}, {"mountPath", s.MountAt}})
		volumes = append(volumes, mapping{{"name", "data"}, {"persistentVolumeClaim", mapping{{"claimName", s.Claim}}}})
	}
	if len(s.Files) > 0 {
		mounts = append(mounts, mapping{{"name", "files"}, {"mountPath", FilesAt}, {"readOnly", true}})
		volumes = append(volumes, mapping{{"name", "files"}, {"configMap", mapping{{"name", s.Name + "-files"}}}})
	}
	c = c.add("volumeMounts", mounts)
	var selector mapping
	for _, key := range slices.Sorted(maps.Keys(s.Selector)) {
		selector = append(selector, pair{key, s.Selector[key]})
	}
	return mapping{{"restartPolicy", "Never"}, {"terminationGracePeriodSeconds", int64(s.Grace.Seconds())}}.
		add("nodeSelector", selector).add("affinity", s.apart()).add("containers", list{c}).add("volumes", volumes)
}

// apart keeps the pods of a run on different nodes, if there are several pods: the plan assumes one host for each pod.
func (s *Spec) apart() mapping {
	if s.processes() == 1 {
		return nil
	}
	return mapping{{"podAntiAffinity", mapping{{"requiredDuringSchedulingIgnoredDuringExecution", list{mapping{
		{"labelSelector", mapping{{"matchLabels", s.app()}}}, {"topologyKey", "kubernetes.io/hostname"}}}}}}}
}

// resources returns what a pod requests. Memory is also its limit: a pod that exceeds it is ended before the whole
// node runs out of memory.
func (s *Spec) resources() mapping {
	var asked, limit mapping
	if s.Cores > 0 {
		asked = asked.add("cpu", fmt.Sprint(s.Cores))
	}
	if s.MemoryBytes > 0 {
		asked = asked.add("memory", fmt.Sprint(s.MemoryBytes))
		limit = limit.add("memory", fmt.Sprint(s.MemoryBytes))
	}
	return mapping{}.add("requests", asked).add("limits", limit)
}

// files returns the ConfigMap of Spec.Files, if there are any.
func (s *Spec) files() []mapping {
	if len(s.Files) == 0 {
		return nil
	}
	var data mapping
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		data = append(data, pair{name, s.Files[name]})
	}
	return []mapping{{{"apiVersion", "v1"}, {"kind", "ConfigMap"}, {"metadata", s.metadata(s.Name+"-files", s.app())},
		{"data", data}}}
}

// common returns the variables that all kinds of pods get: the port of rank 0, the token, and whether to encrypt.
func (s *Spec) common() list {
	env := list{variable(launch.MasterPortVar, fmt.Sprint(launch.DefaultPort)),
		mapping{{"name", launch.TokenVar}, {"valueFrom", mapping{{"secretKeyRef", mapping{{"name", s.Secret},
			{"key", "token"}}}}}}}
	if s.TLS {
		env = append(env, variable(launch.TLSVar, launch.TLSOn))
	}
	return env
}

// variable returns a variable with a value.
func variable(name, value string) mapping { return mapping{{"name", name}, {"value", value}} }

// field returns a variable that gets its value from one of the pod's labels or annotations.
func field(name, of, key string) mapping {
	return mapping{{"name", name},
		{"valueFrom", mapping{{"fieldRef", mapping{{"fieldPath", fmt.Sprintf("metadata.%s['%s']", of, key)}}}}}}
}

// restarts returns the variable for how often a JobSet has started its pods again.
func restarts() mapping {
	return field(launch.RestartVar, "annotations", "jobset.sigs.k8s.io/restart-attempt")
}

// argv returns a command line as a list. Kubernetes would read $(NAME) as a variable; $$ stands for $.
func argv(words []string) list {
	var l list
	for _, w := range words {
		l = append(l, strings.ReplaceAll(w, "$", "$$"))
	}
	return l
}
