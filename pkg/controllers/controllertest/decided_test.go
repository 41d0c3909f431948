package controllertest

import (
	"context"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

type configMaps = corev1client.ConfigMapInterface

func TestAWriteSaysWhatItWasDecidedOn(t *testing.T) {
	known := metav1.ObjectMeta{Name: "x", UID: "u", ResourceVersion: "7"}
	version := "7"
	for name, c := range map[string]struct {
		breach string
		write  func(context.Context, configMaps, metadata.ResourceInterface) error
	}{
		"create": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}}, metav1.CreateOptions{})
			return err
		}},
		"create with a name that the server makes": {"leaves the name to the server", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
			return err
		}},
		"update": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Update(ctx, &corev1.ConfigMap{ObjectMeta: known}, metav1.UpdateOptions{})
			return err
		}},
		"update of any version": {"has no resourceVersion", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Update(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "u"}}, metav1.UpdateOptions{})
			return err
		}},
		"patch": {"", func(ctx context.Context, _ configMaps, m metadata.ResourceInterface) error {
			_, err := m.Patch(ctx, "x", types.MergePatchType, []byte(`{"metadata": {"uid": "u"}}`), metav1.PatchOptions{})
			return err
		}},
		"patch of anything": {"has neither uid nor resourceVersion", func(ctx context.Context, _ configMaps, m metadata.ResourceInterface) error {
			_, err := m.Patch(ctx, "x", types.MergePatchType, []byte(`{"metadata": {"labels": {"a": "b"}}}`), metav1.PatchOptions{})
			return err
		}},
		"JSON patch": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Patch(ctx, "x", types.JSONPatchType, []byte(`[{"op": "test", "path": "/metadata/resourceVersion", "value": "7"}]`), metav1.PatchOptions{})
			return err
		}},
		"JSON patch of anything": {"does not test", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Patch(ctx, "x", types.JSONPatchType, []byte(`[{"op": "remove", "path": "/data"}]`), metav1.PatchOptions{})
			return err
		}},
		"apply": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Apply(ctx, applycorev1.ConfigMap("x", "n").WithResourceVersion("7"), metav1.ApplyOptions{Force: true, FieldManager: "m"})
			return err
		}},
		"apply over anything": {"has neither uid nor resourceVersion", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.Apply(ctx, applycorev1.ConfigMap("x", "n"), metav1.ApplyOptions{Force: true, FieldManager: "m"})
			return err
		}},
		"delete by uid": {"", func(ctx context.Context, _ configMaps, m metadata.ResourceInterface) error {
			return m.Delete(ctx, "x", ofUID("u"))
		}},
		"delete by version": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			return c.Delete(ctx, "x", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{ResourceVersion: &version}})
		}},
		"delete by name": {"has no precondition", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			return c.Delete(ctx, "x", metav1.DeleteOptions{})
		}},
		"delete all there are": {"has no precondition", func(ctx context.Context, _ configMaps, m metadata.ResourceInterface) error {
			return m.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}},
		"read": {"", func(ctx context.Context, c configMaps, _ metadata.ResourceInterface) error {
			_, err := c.List(ctx, metav1.ListOptions{})
			return err
		}},
	} {
		for _, encoding := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
			t.Run(name+" in "+encoding, func(t *testing.T) {
				var breaches []string
				passed := 0
				client := &http.Client{Transport: Decided(roundTripper(func(*http.Request) (*http.Response, error) {
					passed++
					return nil, ErrRefused
				}), func(err error) { breaches = append(breaches, err.Error()) })}
				config := &rest.Config{Host: "http://127.0.0.1", ContentConfig: rest.ContentConfig{ContentType: encoding}}
				kube, err := kubernetes.NewForConfigAndClient(config, client)
				if err != nil {
					t.Fatal(err)
				}
				meta, err := metadata.NewForConfigAndClient(metadata.ConfigFor(config), client)
				if err != nil {
					t.Fatal(err)
				}
				err = c.write(t.Context(), kube.CoreV1().ConfigMaps("n"), meta.Resource(corev1.SchemeGroupVersion.WithResource("configmaps")).Namespace("n"))
				if passed != 1 {
					t.Fatalf("%d requests came through: %v", passed, err)
				}
				if found := strings.Join(breaches, "\n"); c.breach == "" && found != "" || !strings.Contains(found, c.breach) {
					t.Errorf("told %q, want %q", found, c.breach)
				}
			})
		}
	}
}
