package deploy

import (
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// podOf returns the pods of the one StatefulSet that a file of values makes.
func podOf(t *testing.T, file string) corev1.PodSpec {
	t.Helper()
	return of[*appsv1.StatefulSet](objects(t, readValues(t, "testdata/values/"+file)))[0].Spec.Template.Spec
}

// configured is where the operator's files are in a pod.
const configured = "/config/"

// source returns the Secret or ConfigMap from which a pod has a file.
func source(pod corev1.PodSpec, file string) string {
	mounts := pod.Containers[0].VolumeMounts
	m := slices.IndexFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == path.Dir(file) })
	if m < 0 || mounts[m].SubPath != "" || !mounts[m].ReadOnly { // what is mounted by a subpath never changes
		return ""
	}
	v := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == mounts[m].Name })
	switch {
	case v >= 0 && pod.Volumes[v].Secret != nil:
		return "Secret " + pod.Volumes[v].Secret.SecretName
	case v >= 0 && pod.Volumes[v].ConfigMap != nil:
		return "ConfigMap " + pod.Volumes[v].ConfigMap.Name
	}
	return ""
}

func TestTheOperatorsFilesAreWhereTheFlagsSay(t *testing.T) {
	for _, c := range []struct{ values, flag, from string }{
		{"member.yaml", "--encryption-provider-config=/config/encryption/encryption.yaml", "Secret eu1-encryption"},
		{"member.yaml", "--authentication-config=/config/authentication/authentication.yaml", "ConfigMap logins"},
		{"member.yaml", "--authorization-config=/config/authorization/authorization.yaml", "Secret policy"},
		{"member.yaml", "--audit-policy-file=/config/audit-policy/policy.yaml", "ConfigMap audit-policy"},
		{"member.yaml", "--audit-webhook-config-file=/config/audit-webhook/webhook.kubeconfig", "Secret audit-webhook"},
		{"member.yaml", "--client-ca-file=/config/client-ca/ca.crt", "ConfigMap users-ca"},
		{"member.yaml", "--token-auth-file=/config/tokens/tokens.csv", "Secret tokens"},
		{"fronts.yaml", "--client-ca-file=/config/client-ca/ca.crt", "ConfigMap users-ca"},
	} {
		pod := podOf(t, c.values)
		_, file, _ := strings.Cut(c.flag, "=")
		if !slices.Contains(pod.Containers[0].Args, c.flag) {
			t.Errorf("%s: no %s", c.values, c.flag)
		}
		if from := source(pod, file); from != c.from {
			t.Errorf("%s: %s is from %q, want %q", c.values, file, from, c.from)
		}
	}
}

// A flag without its file would keep pods from starting.
func TestNoFlagLeadsToAFileThatIsNotMounted(t *testing.T) {
	for _, file := range valuesFiles(t) {
		pod := podOf(t, path.Base(file))
		for _, arg := range pod.Containers[0].Args {
			if name, value, _ := strings.Cut(arg, "="); strings.HasPrefix(value, configured) && source(pod, value) == "" {
				t.Errorf("%s: %s leads to %s, and nothing is mounted there", file, name, value)
			}
		}
	}
}

func TestWhatIsAuditedIsLoggedUnlessSomebodySaysOtherwise(t *testing.T) {
	const logged = "--audit-log-path=-"
	if slices.Contains(podOf(t, "member.yaml").Containers[0].Args, logged) {
		t.Error("it is logged though audit.log is false")
	}
	values := readValues(t, "testdata/values/alone.yaml")
	values["shard"].(map[string]any)["audit"] = map[string]any{"policy": map[string]any{"configMapName": "audit"}}
	if pod := of[*appsv1.StatefulSet](objects(t, values))[0].Spec.Template.Spec; !slices.Contains(pod.Containers[0].Args, logged) {
		t.Error("it is not logged")
	}
}

// Whoever says nothing of quotas has some; what extraArgs say comes later, and counts.
func TestQuotasAreOnUnlessSomebodySaysOtherwise(t *testing.T) {
	values := readValues(t, "testdata/values/alone.yaml")
	values["shard"].(map[string]any)["extraArgs"] = []any{"--max-objects-per-cluster=7"}
	args := of[*appsv1.StatefulSet](objects(t, values))[0].Spec.Template.Spec.Containers[0].Args
	for _, flag := range []string{"--max-objects-per-cluster", "--max-bytes-per-cluster", "--max-workspaces-per-cluster", "--max-workspace-depth"} {
		n := slices.IndexFunc(args, func(arg string) bool {
			value, ok := strings.CutPrefix(arg, flag+"=")
			return ok && len(strings.TrimLeft(value, "0123456789")) == 0 && value != "0"
		})
		if n < 0 {
			t.Errorf("%s is not given, or is no number: %q", flag, args)
		}
	}
	if args[len(args)-1] != "--max-objects-per-cluster=7" {
		t.Errorf("extraArgs are not last: %q", args)
	}
	for _, off := range []string{"--max-objects-per-cluster=0", "--max-bytes-per-cluster=1073741824", "--max-workspace-depth=0"} {
		if !slices.Contains(podOf(t, "member.yaml").Containers[0].Args, off) {
			t.Errorf("no %s, which the values say", off)
		}
	}
}
