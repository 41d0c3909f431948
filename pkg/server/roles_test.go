package server

import (
	"strings"
	"testing"

	"github.com/regent-project/regent/pkg/server/access"
)

// notForTenants are the resources that no built-in role but cluster-admin names, and why.
var notForTenants = map[string]string{
	"clusterroles.rbac.authorization.k8s.io":                "they are good for the whole cluster, and so for its administrators",
	"clusterrolebindings.rbac.authorization.k8s.io":         "they are good for the whole cluster, and so for its administrators",
	"customresourcedefinitions.apiextensions.k8s.io":        "they are good for the whole cluster, and so for its administrators",
	"customresourcedefinitions/status.apiextensions.k8s.io": "it is the leader's",
	"apiresourceschemas.apis.kcp.io":                        "they are good for the whole cluster, and so for its administrators",
	"apiexports.apis.kcp.io":                                "they are good for the whole cluster, and so for its administrators",
	"apibindings.apis.kcp.io":                               "they are good for the whole cluster, and so for its administrators",
	"apibindings/status.apis.kcp.io":                        "it is the leader's",
	"subjectaccessreviews.authorization.k8s.io":             "they tell of all users of the cluster",
	"tokenreviews.authentication.k8s.io":                    "who can ask about tokens could try them",
	"shards.core.kcp.io":                                    "they are the operator's",
	"shards/status.core.kcp.io":                             "they are the operator's",
	"namespaces/finalize":                                   "who finalizes a namespace leaves behind what is in it",
}

// Whoever adds a resource says who may use it: in one of the built-in roles, or above.
func TestEachServedResourceIsInABuiltInRoleOrHasAReason(t *testing.T) {
	s := startSociety(t)
	_, lists, err := s.at.adminIn(t, "root").Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, role := range access.ClusterRoles() {
		if role.Name == access.AdminRole {
			continue
		}
		for _, rule := range role.Rules {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					named[strings.TrimSuffix(resource+"."+group, ".")] = true
				}
			}
		}
	}
	served := map[string]bool{}
	for _, list := range lists {
		group, _, ok := strings.Cut(list.GroupVersion, "/")
		if !ok {
			group = ""
		}
		for _, r := range list.APIResources {
			name := strings.TrimSuffix(r.Name+"."+group, ".")
			served[name] = true
			if _, excepted := notForTenants[name]; named[name] == excepted {
				t.Errorf("%s is in a built-in role: %t, and has a reason not to be: %t", name, named[name], excepted)
			}
		}
	}
	if len(served) < 15 || !served["configmaps"] {
		t.Errorf("only these are served: %v", served)
	}
	for name := range notForTenants {
		if !served[name] {
			t.Errorf("%s is not served", name)
		}
	}
}
