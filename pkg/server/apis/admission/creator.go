package admission

import (
	"context"

	tenancyv1alpha1 "github.com/kcp-dev/sdk/apis/tenancy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/regent-project/regent/pkg/clusters"
)

// Creator records on a new Workspace who has created it, if nobody is recorded: that user becomes the administrator of
// its logical cluster. Members of system:masters need no rights there, and are not recorded. They may record somebody
// else.
type Creator struct{}

// Handles implements admission.Interface.
func (Creator) Handles(op admission.Operation) bool { return op == admission.Create }

// Admit implements admission.MutationInterface.
func (Creator) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	ws, ok := a.GetObject().(*tenancyv1alpha1.Workspace)
	if !ok || ws.Annotations[tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey] != "" {
		return nil
	}
	if who := recorded(a.GetUserInfo()); who != "" {
		metav1.SetMetaDataAnnotation(&ws.ObjectMeta, tenancyv1alpha1.ExperimentalWorkspaceOwnerAnnotationKey, who)
	}
	return nil
}

// recorded returns what Creator records of a user.
func recorded(who user.Info) string {
	if who == nil || isMaster(who) {
		return ""
	}
	return clusters.EncodeCreator(who.GetName(), who.GetExtra())
}

var _ admission.MutationInterface = Creator{}
