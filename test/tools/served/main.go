// Command served prints the Go types that clients of a shard send and get, and the types that these consist of: one
// type a line, the path of its package and its name. test/tools/openapi makes OpenAPI definitions from them.
package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"

	"github.com/regent-project/regent/pkg/server/apis"
)

func main() {
	reached := map[reflect.Type]bool{}
	for _, object := range apis.Types() {
		reach(reflect.TypeOf(object), reached)
	}
	var lines []string
	for t := range reached {
		if t.PkgPath() != "" {
			lines = append(lines, t.PkgPath()+" "+t.Name())
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}

// reach adds t and the types that it consists of. If a type encodes itself, clients do not see what it consists of.
func reach(t reflect.Type, reached map[reflect.Type]bool) {
	if reached[t] {
		return
	}
	reached[t] = true
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()) {
		return
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		reach(t.Elem(), reached)
	case reflect.Map:
		reach(t.Key(), reached)
		reach(t.Elem(), reached)
	case reflect.Struct:
		for i := range t.NumField() {
			reach(t.Field(i).Type, reached)
		}
	}
}
