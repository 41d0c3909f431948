package lease

import (
	"slices"
	"strings"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Life is the Lease that stands for the life of a process that holds the lease for life. Name is empty if another kind
// of object does so, such as a Pod: then the garbage collector deletes the election's Lease with it.
type Life struct {
	Name string
	UID  types.UID
}

// lifePrefix is the beginning of the names of such Leases. The process's uuid follows.
const lifePrefix = "replica-"

// leaseKind is the kind of these objects.
var leaseKind = coordinationv1.SchemeGroupVersion.WithKind("Lease")

// LifeName returns the name of the Lease that stands for the life of a process.
func LifeName(process string) string { return lifePrefix + process }

// StandsForLife reports whether lease stands for the life of a process.
func StandsForLife(lease *coordinationv1.Lease) bool {
	process, ok := strings.CutPrefix(lease.Name, lifePrefix)
	_, said := saidPresence(lease)
	return ok && said && uuid.Validate(process) == nil
}

// OwnerReference returns a reference to the Lease of that name and uid for the objects that it owns.
func OwnerReference(name string, uid types.UID) *metav1.OwnerReference {
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	return &metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: uid}
}

// LifeOf returns what stands for the life of the lease's holder. What the holder says of itself counts, even if
// somebody has removed that owner from the Lease. If the holder says nothing, the Lease's owner counts.
func LifeOf(lease *coordinationv1.Lease) Life {
	p, said := saidPresence(lease)
	return lifeOf(lease, p, said)
}

// lifeOf is LifeOf for a Lease whose presence is decoded: p is what the holder says of itself, if said is true.
func lifeOf(lease *coordinationv1.Lease, p Presence, said bool) Life {
	if said {
		return Life{Name: p.Life, UID: p.Owner}
	}
	return lifeAmongOwners(lease)
}

// lifeAmongOwners returns the owner of lease that is a Lease for a process's life.
func lifeAmongOwners(lease *coordinationv1.Lease) Life {
	if lease == nil {
		return Life{}
	}
	apiVersion, kind := leaseKind.ToAPIVersionAndKind()
	for _, owner := range lease.OwnerReferences {
		if owner.APIVersion == apiVersion && owner.Kind == kind && strings.HasPrefix(owner.Name, lifePrefix) {
			return Life{Name: owner.Name, UID: owner.UID}
		}
	}
	return Life{}
}

// TermOwner returns the owner that the election gave the Lease; nil if there is none. It stays the same if another
// takes the lease without changing the owners.
func TermOwner(lease *coordinationv1.Lease) *metav1.OwnerReference {
	if i := termOwner(lease); i >= 0 {
		return &lease.OwnerReferences[i]
	}
	return nil
}

// disown removes that owner. It leaves owners that others have given the Lease.
func disown(lease *coordinationv1.Lease) {
	if i := termOwner(lease); i >= 0 {
		lease.OwnerReferences = slices.Delete(slices.Clone(lease.OwnerReferences), i, i+1)
	}
}

// termOwner returns the index of that owner; -1 if there is none.
func termOwner(lease *coordinationv1.Lease) int {
	uid := lifeAmongOwners(lease).UID
	if p, some := PresenceOn(lease); some {
		uid = p.Owner
	}
	return slices.IndexFunc(lease.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == uid })
}
