package deploy

import (
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// checkPodMonitor decodes a PodMonitor by the operator's own types. A field that they do not have is an error.
func checkPodMonitor(t *testing.T, document string) {
	t.Helper()
	var monitor monitoringv1.PodMonitor
	if err := yaml.UnmarshalStrict([]byte(document), &monitor); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	if monitor.APIVersion != monitoringv1.SchemeGroupVersion.String() || len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Errorf("not a PodMonitor with one endpoint:\n%s", document)
	}
}
