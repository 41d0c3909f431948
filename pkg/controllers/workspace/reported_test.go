package workspace

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Whatever field of a status is another one, also one that kcp adds, the status is another one.
func TestEachFieldOfAStatusCounts(t *testing.T) {
	ws, lc := fresh(withCluster), strangers("Ready")
	lc.Spec.Owner.UID = ws.UID
	ws = reported(world{workspace: ws, logicalCluster: lc, parent: parent("root")})
	if !sameStatus(&ws.Status, &ws.DeepCopy().Status) || len(ws.Status.Conditions) == 0 {
		t.Fatalf("a copy is another one: %+v", ws.Status)
	}
	for _, where := range fieldsOf(reflect.TypeOf(ws.Status), "") {
		other := ws.DeepCopy()
		change(reflect.ValueOf(&other.Status).Elem().FieldByIndex(where.index))
		if sameStatus(&ws.Status, &other.Status) {
			t.Errorf("another %s is not noticed", where.name)
		}
	}
	for _, where := range fieldsOf(reflect.TypeOf(ws.Status.Conditions[0]), "conditions.") {
		other := ws.DeepCopy()
		change(reflect.ValueOf(&other.Status.Conditions[0]).Elem().FieldByIndex(where.index))
		if sameStatus(&ws.Status, &other.Status) {
			t.Errorf("another %s is not noticed", where.name)
		}
	}
}

type field struct {
	name  string
	index []int
}

func fieldsOf(of reflect.Type, prefix string) (all []field) {
	for _, f := range reflect.VisibleFields(of) {
		all = append(all, field{prefix + f.Name, f.Index})
	}
	return all
}

// change makes a field another one.
func change(v reflect.Value) {
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		*at = metav1.NewTime(at.Add(time.Hour))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(v.String() + "x")
	case reflect.Slice:
		v.Set(reflect.Append(reflect.MakeSlice(v.Type(), 0, 1), reflect.Zero(v.Type().Elem())))
	default:
		panic(fmt.Sprintf("say how to change a %s", v.Type()))
	}
}
