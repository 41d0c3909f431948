// Package undone remembers what need not be undone at the end of a term any more.
package undone

import (
	"reflect"
	"sync"
)

// Undone has, by what they are about, the functions with which OnEnd lets go of something. The zero Undone is empty.
// Any goroutine may call its methods.
type Undone struct{ byKey sync.Map }

// Keep keeps forget for a key. A key that cannot be compared is not kept: what a scope keeps of it ends with the scope.
func (u *Undone) Keep(key any, forget func()) {
	if reflect.ValueOf(key).Comparable() {
		u.byKey.Store(key, forget)
	}
}

// Forget calls the function that was kept for a key, once.
func (u *Undone) Forget(key any) {
	if !reflect.ValueOf(key).Comparable() {
		return
	}
	if forget, ok := u.byKey.LoadAndDelete(key); ok {
		forget.(func())()
	}
}
