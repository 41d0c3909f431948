package clusters

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// BuiltInVersion is the resourceVersion of objects that every logical cluster has, though none is stored. No stored
// object has it: the first write to an etcd makes version 2.
const BuiltInVersion = "1"

// IsBuiltIn reports whether an object is built in: it can be read, and neither changed nor deleted.
func IsBuiltIn(obj metav1.Object) bool { return obj.GetResourceVersion() == BuiltInVersion }
