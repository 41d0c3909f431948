package deploy

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	psapi "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/yaml"
)

const chart = "../../deploy/helm/regent"

// render returns the documents of the chart with values, as `helm install shard --namespace regent` would send them.
func render(values map[string]any) ([]string, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	all, err := util.ToRenderValues(loaded, values, common.ReleaseOptions{Name: "shard", Namespace: "regent", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := (engine.Engine{Strict: true}).Render(loaded, all)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		for _, document := range strings.Split(files[name], "\n---\n") {
			if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(document) != "" {
				out = append(out, document)
			}
		}
	}
	return out, nil
}

func readValues(t *testing.T, file string) map[string]any {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// valuesFiles are what the chart is rendered with.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/values/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%q, %v", files, err)
	}
	return files
}

// objects returns what the chart makes with values. A field that Kubernetes does not know is an error. PodMonitors are
// not Kubernetes'.
func objects(t *testing.T, values map[string]any) []runtime.Object {
	t.Helper()
	documents, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	strict := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var out []runtime.Object
	for _, document := range documents {
		if strings.Contains(document, "kind: PodMonitor\n") {
			checkPodMonitor(t, document)
			continue
		}
		object, _, err := strict.Decode([]byte(document), nil, nil)
		if err != nil {
			t.Errorf("%v in\n%s", err, document)
			continue
		}
		out = append(out, object)
	}
	return out
}

// of returns the objects of one type.
func of[T runtime.Object](all []runtime.Object) (out []T) {
	for _, object := range all {
		if o, ok := object.(T); ok {
			out = append(out, o)
		}
	}
	return out
}

func TestTheChartIsWhatHelmAndKubernetesKnow(t *testing.T) {
	for _, file := range valuesFiles(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			values := readValues(t, file)
			for _, message := range lint.RunAll(chart, values, "regent").Messages {
				if message.Severity > support.InfoSev {
					t.Error(message)
				}
			}
			all, names := objects(t, values), map[string]bool{}
			if len(of[*appsv1.StatefulSet](all)) == 0 || len(of[*corev1.Service](all)) == 0 {
				t.Errorf("%d objects", len(all))
			}
			for _, object := range all {
				name := object.(metav1.Object).GetName()
				key := object.GetObjectKind().GroupVersionKind().String() + " " + name
				if names[key] || object.(metav1.Object).GetNamespace() != "" {
					t.Errorf("%s is there twice, or has a namespace of its own", key)
				}
				names[key] = true
			}
		})
	}
}

// The strictest of Kubernetes' standards for pods allows the chart's, by its own evaluator.
func TestPodsAreRestricted(t *testing.T) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	restricted := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
	for _, file := range valuesFiles(t) {
		for _, set := range of[*appsv1.StatefulSet](objects(t, readValues(t, file))) {
			pod := set.Spec.Template
			if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
				t.Errorf("%s %s: %s", file, set.Name, result.ForbiddenDetail())
			}
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				if !*c.SecurityContext.ReadOnlyRootFilesystem || c.Resources.Limits.Memory().IsZero() {
					t.Errorf("%s %s %s: may write to its image, or use all memory", file, set.Name, c.Name)
				}
			}
			if *pod.Spec.AutomountServiceAccountToken || !maps.Equal(set.Spec.Selector.MatchLabels, selected(pod.Labels, set.Spec.Selector.MatchLabels)) {
				t.Errorf("%s %s: has a token it does not need, or does not select its own pods", file, set.Name)
			}
		}
	}
}

// selected returns those labels that a selector asks for.
func selected(labels, selector map[string]string) map[string]string {
	labels = maps.Clone(labels)
	maps.DeleteFunc(labels, func(k, _ string) bool { _, asked := selector[k]; return !asked })
	return labels
}

func TestOnlyReplicasReachTheProbe(t *testing.T) {
	all := objects(t, readValues(t, "testdata/values/member.yaml"))
	policies, pod := of[*networkingv1.NetworkPolicy](all), of[*appsv1.StatefulSet](all)[0].Spec.Template
	if len(policies) != 1 {
		t.Fatalf("%d policies", len(policies))
	}
	for _, rule := range policies[0].Spec.Ingress {
		among := len(rule.From) == 1 && rule.From[0].PodSelector != nil && rule.From[0].NamespaceSelector == nil &&
			maps.Equal(rule.From[0].PodSelector.MatchLabels, selected(pod.Labels, rule.From[0].PodSelector.MatchLabels))
		https := len(rule.Ports) == 1 && rule.Ports[0].Port.String() == "https"
		if !among && !https {
			t.Errorf("%+v lets others than replicas to more than the API", rule)
		}
	}
	if !maps.Equal(policies[0].Spec.PodSelector.MatchLabels, selected(pod.Labels, policies[0].Spec.PodSelector.MatchLabels)) {
		t.Error("the policy is not for the replicas")
	}
}

func TestAPodHasTimeToStop(t *testing.T) {
	for _, file := range valuesFiles(t) {
		for _, set := range of[*appsv1.StatefulSet](objects(t, readValues(t, file))) {
			delay := int64(0)
			for _, arg := range set.Spec.Template.Spec.Containers[0].Args {
				if value, ok := strings.CutPrefix(arg, "--shutdown-delay-duration="); ok {
					delay = seconds(t, value)
				}
			}
			if grace := *set.Spec.Template.Spec.TerminationGracePeriodSeconds; delay == 0 || grace < longestStop+delay {
				t.Errorf("%s %s: %d s to stop, with a delay of %d s", file, set.Name, grace, delay)
			}
		}
	}
}

// Each front is a StatefulSet of its own, so nothing keeps Kubernetes from replacing all of them at once but that it
// replaces none by itself. Replicas of a shard are one StatefulSet, which replaces one after the other.
func TestFrontsAreReplacedOneAfterTheOther(t *testing.T) {
	fronts := 0
	for _, file := range valuesFiles(t) {
		for _, set := range of[*appsv1.StatefulSet](objects(t, readValues(t, file))) {
			isFront := set.Spec.Selector.MatchLabels["regent.dev/front"] != ""
			if by := set.Spec.UpdateStrategy.Type; isFront != (by == appsv1.OnDeleteStatefulSetStrategyType) {
				t.Errorf("%s %s: updated by %q", file, set.Name, by)
			}
			if isFront {
				fronts++
			}
		}
	}
	if fronts < 2 {
		t.Errorf("%d fronts: this shows nothing", fronts)
	}
}

// A value that means nothing is refused before anything is sent, with the name of the value.
func TestValuesThatMeanNothingAreRefused(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"", "baseURL"},
		{"{baseURL: 'https://a'}", "image"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {pki: {create: true}}}", "etcd.servers"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {etcd: {servers: ['https://e']}}}", "shard.pki"},
		{"{baseURL: 'https://a', image: {repository: a}, shard: {etcd: {servers: ['https://e']}, pki: {create: true}}}", "image.tag"},
		{"{baseURL: 'http://a', image: {repository: a, tag: v1}}", "baseURL"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, replicas: 3}", "replicas"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {replicas: 0}}", "replicas"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {replicas: two}}", "replicas"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {pki: {create: true, secretName: b}}}", "pki"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {antiAffinity: perhaps}}", "antiAffinity"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {extraArgs: [leader-election-mode=for-life]}}", "extraArgs"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {port: 443}}", "port"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, fronts: [{name: f1}]}", "membershipSecret"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {enabled: false}, podMonitor: {enabled: true}}", "clientSecret"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {quotas: {objectsPerCluster: many}}}", "objectsPerCluster"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {encryption: {configMapName: keys}}}", "encryption"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {authentication: {configMapName: a, secretName: b}}}", "authentication"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {extraFiles: [{name: a}]}}", "extraFiles"},
		{"{baseURL: 'https://a', image: {repository: a, tag: v1}, shard: {pki: {create: true}, audit: {webhook: {secretName: a}}}}", "shard.audit.policy"},
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(c.values), &values); err != nil {
			t.Fatal(err)
		}
		documents, err := render(values)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %s, got %d documents, %v", c.values, c.want, len(documents), err)
		}
	}
}

// Everything in values.yaml is in the schema, so that a misspelt value is refused wherever it is.
func TestTheSchemaKnowsAllValues(t *testing.T) {
	schema := readValues(t, chart+"/values.schema.json")
	var walk func(path string, values, schema map[string]any)
	walk = func(path string, values, schema map[string]any) {
		if ref, ok := schema["$ref"].(string); ok {
			schema = readValues(t, chart+"/values.schema.json")["definitions"].(map[string]any)[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
		}
		properties, known := schema["properties"].(map[string]any)
		if known && schema["additionalProperties"] != false {
			t.Errorf("%s: any value is allowed", path)
		}
		for name, value := range values {
			below, ok := value.(map[string]any)
			switch property, found := properties[name].(map[string]any); {
			case !known:
			case !found:
				t.Errorf("%s.%s is not in the schema", path, name)
			case ok:
				walk(path+"."+name, below, property)
			}
		}
	}
	walk("", readValues(t, chart+"/values.yaml"), schema)
}

// The manifests in docs/BACKUP.md are such as Kubernetes takes, in a namespace that is as strict as can be, with flags
// that there are.
func TestTheDocumentedBackupsRunInARestrictedNamespace(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "docs/BACKUP.md"))
	if err != nil {
		t.Fatal(err)
	}
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	decoder := serializer.NewCodecFactory(scheme.Scheme, serializer.EnableStrict).UniversalDeserializer()
	var programs []string
	for _, manifest := range regexp.MustCompile("(?ms)^```yaml\n(.*?)^```").FindAllStringSubmatch(string(content), -1) {
		object, _, err := decoder.Decode([]byte(manifest[1]), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		var pod corev1.PodTemplateSpec
		switch o := object.(type) {
		case *batchv1.CronJob:
			pod = o.Spec.JobTemplate.Spec.Template
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				programs = append(programs, slices.Concat(c.Command, c.Args)[0])
				if c.Command == nil {
					checkCommand(t, "docs/BACKUP.md", c.Args)
				}
			}
		case *appsv1.StatefulSet:
			pod = o.Spec.Template
			programs = append(programs, pod.Spec.Containers[0].Args[0])
			checkCommand(t, "docs/BACKUP.md", pod.Spec.Containers[0].Args)
			checkCommand(t, "docs/BACKUP.md", pod.Spec.Containers[0].ReadinessProbe.Exec.Command[1:])
		}
		restricted := psapi.LevelVersion{Level: psapi.LevelRestricted, Version: psapi.LatestVersion()}
		if result := policy.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec)); !result.Allowed {
			t.Error(result.ForbiddenDetail())
		}
	}
	if want := []string{"/etcdctl", "backup", "backup", "backup"}; !slices.Equal(programs, want) {
		t.Errorf("they run %q, want %q", programs, want)
	}
}
